# Stops in the wide register block of matmul_sweep.c, after 256 of the products of one block. Registers are found by the names
# that the compiler chose. Of each vector the low eight lanes are printed, of registers below 16: gdb 13 on the first machine
# printed values for the others that the program could not have.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
break rows_8
run
delete
python
import re
lines = gdb.execute("disassemble rows_8", to_string=True).splitlines()
fused = [i for i, line in enumerate(lines) if "vfmadd" in line and int(re.findall(r"%[yz]mm(\d+)", line)[-1]) < 16]
factor, panel, total = re.findall(r"%[yz]mm(\d+)", lines[fused[0]])
load = next(i for i in range(fused[0], 0, -1) if re.search(rf"vmov\S+\s.*\),%[yz]mm{panel}$", lines[i]))
gdb.execute("break *" + re.search(r"0x[0-9a-f]+", lines[load])[0])
gdb.execute("ignore 2 256")
gdb.execute("continue")
gap, base = re.search(r"(-?0x[0-9a-f]+)?\(%(\w+)\)", lines[load]).groups()
where = int(gdb.parse_and_eval(f"(long)${base}")) + int(gap or "0", 16)
gdb.write("@@memory: the floats of B that the load reads, then the first bytes\n")
gdb.execute(f"x/8fw {where:#x}")
gdb.execute(f"x/16xb {where:#x}")
gdb.execute("tbreak *" + re.search(r"0x[0-9a-f]+", lines[fused[0]])[0])
gdb.execute("continue")
gdb.write("@@instructions\n")
gdb.execute("x/12i $rip")
gdb.write("@@registers: instruction pointer; element of A in all lanes; vector of B; sums of a row of C\n")
gdb.execute("info registers rip")
for name in (factor, panel, total):
    gdb.write(f"ymm{name} ")
    gdb.execute(f"print $ymm{name}.v8_float")
gdb.write("@@after the instruction\n")
gdb.execute("stepi")
gdb.write(f"ymm{total} ")
gdb.execute(f"print $ymm{total}.v8_float")
end
kill
