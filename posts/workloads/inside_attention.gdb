# Stops at the softmax of query 100: all scores are in memory, as products that are not yet normalised.
set pagination off
set debuginfod enabled off
set debug-file-directory /nonexistent
set print frame-arguments all
set width 120
break 37
ignore 1 100
run
echo @@frame\n
frame
info breakpoints
echo @@scores of query 100\n
x/16fw s + 100 * t
echo @@the same bytes\n
x/32xb s + 100 * t
echo @@registers\n
info registers rip rsp rax rcx rdx
print $ymm0.v8_float
print $ymm1.v8_float
print $ymm2.v8_float
echo @@instructions\n
x/12i $rip
echo @@size of the scores\n
p (unsigned long)n * t * sizeof(float)
info proc mappings
kill
