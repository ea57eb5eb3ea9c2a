"""A program in Python: python3 worker.py LIBRARY."""
import ctypes
import sys

lib = ctypes.CDLL(sys.argv[1])
lib.cuda_last_error.restype = ctypes.c_char_p
lib.vram_free.argtypes = [ctypes.c_void_p]
for name in ("vram_memcpy_h2d", "vram_memcpy_d2h"):
    getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def check(code):
    if code:
        raise RuntimeError(lib.cuda_last_error().decode())


memory = ctypes.c_void_p()
check(lib.vram_malloc(ctypes.byref(memory), ctypes.c_size_t(5)))
check(lib.vram_memcpy_h2d(memory, b"hello", 5))
back = ctypes.create_string_buffer(4)
check(lib.vram_memcpy_d2h(back, memory.value + 1, 4))
assert back.raw == b"ello", back.raw
check(lib.vram_free(memory))
try:
    check(lib.vram_free(memory))
except RuntimeError as refused:
    assert "was freed before" in str(refused), refused
    print("ok")
