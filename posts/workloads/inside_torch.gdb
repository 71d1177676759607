# Stops in the kernel that torch.mm calls for float32 on an AMD processor, and counts the widths of its multiply-adds.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 110
set breakpoint pending on
break mkl_blas_def_sgemm_kernel_0_zen
run
delete
python
import re
lines = gdb.execute("disassemble mkl_blas_def_sgemm_kernel_0_zen", to_string=True).splitlines()
found = [line for line in lines if "vfmadd" in line]
gdb.write(f"@@widths of {len(found)} vfmadd in {len(lines)} instructions\n")
for width in ("zmm", "ymm", "xmm"):
    gdb.write(f"{width} {sum(width in line for line in found)}\n")
gdb.execute("break *" + re.search(r"0x[0-9a-f]+", found[0])[0])
gdb.execute("continue")
gdb.write("@@instructions\n")
gdb.execute("x/13i $rip")
end
kill
