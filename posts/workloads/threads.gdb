# Both threads of a decode step in the parallel region of one matrix product: stacks and registers.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
set breakpoint pending on
handle SIGUSR1 nostop noprint
tbreak GOMP_parallel
run
delete
break GOMP_parallel
ignore 2 1200
continue
delete
echo @@at the start of a parallel region: function and data of the team\n
x/2i $pc
info registers rip rsp rdi rsi rdx rcx
info symbol $rdi
x/4gx $rsi
echo @@threads\n
info threads
echo @@stacks\n
thread apply all backtrace 6
echo @@where the other thread of the team is\n
python
for thread in gdb.selected_inferior().threads():
    thread.switch()
    if (gdb.selected_frame().name() or "").startswith("gomp_"):
        gdb.execute("info registers rip rax rcx rdx rdi rsi")
        gdb.execute("x/16i $pc - 29")
end
kill
