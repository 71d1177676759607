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
echo @@registers: sums of the first row of C, and the element of A in all lanes\n
info registers rip rax rdx
print $zmm0.v16_float
print $zmm1.v16_float
print $zmm2.v16_float
echo @@memory: the panel of B that the instruction reads\n
x/16fw $rdx - 0x80
x/32xb $rdx - 0x80
kill
