# Stops at the first instruction of the register block of packed(), after half of the products of one block.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
break packed
run
delete
python
import re
text = gdb.execute("disassemble packed", to_string=True)
found = [line for line in text.splitlines() if "vfmadd231ps" in line]
address = re.search(r"0x[0-9a-f]+", found[0])[0]
gdb.execute("break *" + address)
end
ignore 2 256
continue
echo @@instructions\n
x/14i $rip
echo @@registers: lower halves, for gdb 13 reads the upper halves of zmm wrongly on this processor\n
info registers rip rax rdx
print $ymm0.v8_float
print $ymm8.v8_float
print $ymm2.v8_float
echo @@memory: the panel of B that the instruction reads\n
x/16fw $rdx - 0x80
x/32xb $rdx - 0x80
kill
