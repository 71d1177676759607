# The first call of the CUDA runtime on a machine without a driver: its arguments, and the error in the register of the result.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set width 120
rbreak ^cudaGetDeviceProperties
run
echo @@arguments\n
backtrace 3
info registers rip rsp rdi rsi
x/4i $pc
set $properties = $rdi
finish
echo @@result\n
info registers rax rip
x/6i $pc
echo @@memory at the address of the device properties after the call\n
x/32xb $properties
kill
