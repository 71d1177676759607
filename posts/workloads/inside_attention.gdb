# Stops in naive() at the row maximum of query 100, when all scores are in memory.
set pagination off
set print frame-arguments all
set width 120
break naive
run > /dev/null
tbreak 36 if i == 100
continue
echo @@frame\n
frame
info locals
echo @@scores of the row before softmax\n
x/16fw s + (long)i * t
echo @@the same bytes\n
x/32xb s + (long)i * t
echo @@registers\n
info registers rip rsp rax rcx
p $ymm0.v8_float
p $ymm1.v8_float
echo @@instructions\n
x/10i $rip
echo @@mapping of the scores\n
p (size_t)n * t * sizeof(float)
kill
