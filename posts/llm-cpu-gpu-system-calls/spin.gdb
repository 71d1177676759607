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
python
import re

def shown(command):
    return gdb.execute(command, to_string=True)

main = gdb.selected_thread()
# Stop after stop, until the worker spins: it may be asleep at the first.
for stop in range(1, 21):
    worker = None
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        pc = gdb.selected_frame().pc()
        name = gdb.solib_name(pc) or ""
        if thread.num != main.num and "libgomp" in name and "pause" in shown("x/2i $pc - 2"):
            worker = thread
            break
    if worker is not None:
        break
    main.switch()
    gdb.execute("continue")
else:
    raise gdb.GdbError("no worker was found in a spin loop")
main.switch()
print("@@the main thread, stop %d" % stop)
gdb.execute("x/1i $pc")
worker.switch()
base = min(int(line.split()[0], 16) for line in shown("info proc mappings").splitlines() if name in line)
print("@@a worker in libgomp, offset %#x" % (pc - base))
loop = shown("x/8i $pc - 2")
gdb.execute("x/8i $pc - 2")
limit = re.search(r"cmp +%(r\w+),%rax", loop)[1]
at, seen = re.search(r"mov +(?:0x0)?\(%(r\w+)\),%(e\w+)", loop).groups()
print("@@its registers")
gdb.execute("info registers rip rax %s %s %s" % (limit, at, "r" + seen[1:]))
print("@@the word at %s, and the memory behind it" % at)
gdb.execute("x/4xw $%s" % at)
value = lambda register: int(gdb.parse_and_eval("$" + register)) & 0xFFFFFFFF
word = int.from_bytes(bytes(gdb.selected_inferior().read_memory(int(gdb.parse_and_eval("$" + at)), 4)), "little")
print("rounds=%d limit=%d read_last=%d in_memory=%d" % (value("rax"), value(limit), value(seen), word))
end
kill
