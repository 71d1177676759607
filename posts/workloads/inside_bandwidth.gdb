# Stops in the read loop: 16 sums in vector registers, and the line of memory that the next load reads.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
break summed
run
delete
python
import re
text = gdb.execute("disassemble summed", to_string=True)
load = next(line for line in text.splitlines() if "vpaddq" in line and "(%" in line)
gdb.execute("break *" + re.search(r"0x[0-9a-f]+", load)[0])
gdb.execute("set $base = " + re.search(r"\(%(\w+)", load)[1].join(["$", ""]))
end
ignore 2 100
continue
echo @@instructions\n
x/8i $pc
echo @@registers: lower halves, for gdb 13 reads the upper halves of zmm wrongly on this processor\n
info registers rip rax rdi rsi rdx
print $ymm1.v4_int64
print $ymm2.v4_int64
echo @@the line of memory at the argument x\n
x/8gd $rdi
x/64xb $rdi
kill
