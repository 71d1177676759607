# A worker between two parallel regions of a decode step: its registers in the spin loop, and the word that it watches.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
set breakpoint pending on
set print thread-events off
handle SIGUSR1 nostop noprint
# SiLU follows the gate's matrix product, which is a parallel region. Eight calls belong to the two prefills.
tbreak _ZN2at4_ops4silu4callERKNS_6TensorE
run
break _ZN2at4_ops4silu4callERKNS_6TensorE
ignore 2 20
continue
echo @@the main thread\n
x/1i $pc
python
for thread in gdb.selected_inferior().threads():
    thread.switch()
    name = gdb.solib_name(gdb.selected_frame().pc()) or ""
    if "libgomp" in name:
        print("@@a worker in libgomp")
        gdb.execute("x/1i $pc")
        gdb.execute("info registers rip rax rbx rcx rdx rbp rdi")
        print("@@the loop")
        gdb.execute("x/12i $pc")
        print("@@the word at rdi, and the memory behind it")
        gdb.execute("x/8xw $rdi")
end
kill
