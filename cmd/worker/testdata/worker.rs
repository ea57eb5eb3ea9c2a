// A program in Rust: memory that frees itself, and errors with their sentence.
// rustc --edition=2021 worker.rs -L FOLDER -l exoswarm_worker

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;

extern "C" {
    fn cuda_error_message(code: c_int) -> *const c_char;
    fn cuda_last_error() -> *const c_char;
    fn vram_malloc(ptr: *mut *mut c_void, bytes: usize) -> c_int;
    fn vram_free(ptr: *mut c_void) -> c_int;
    fn vram_memcpy_h2d(dst: *mut c_void, src: *const c_void, bytes: usize) -> c_int;
    fn vram_memcpy_d2h(dst: *mut c_void, src: *const c_void, bytes: usize) -> c_int;
}

fn check(code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both texts are never null and end with 0.
    let text = |p: *const c_char| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned();
    Err(unsafe { format!("{}: {}", text(cuda_error_message(code)), text(cuda_last_error())) })
}

struct Memory(*mut c_void);

impl Memory {
    fn new(bytes: usize) -> Result<Memory, String> {
        let mut p = ptr::null_mut();
        check(unsafe { vram_malloc(&mut p, bytes) })?;
        Ok(Memory(p))
    }
    fn write_at(&mut self, at: usize, data: &[u8]) -> Result<(), String> {
        check(unsafe { vram_memcpy_h2d(self.0.wrapping_byte_add(at), data.as_ptr().cast(), data.len()) })
    }
    fn read_at(&self, at: usize, data: &mut [u8]) -> Result<(), String> {
        check(unsafe { vram_memcpy_d2h(data.as_mut_ptr().cast(), self.0.wrapping_byte_add(at), data.len()) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        check(unsafe { vram_free(self.0) }).expect("vram_free");
    }
}

fn main() -> Result<(), String> {
    for n in 1..1001 {
        let mut m = Memory::new(n)?;
        m.write_at(n - 1, &[n as u8])?;
        let mut back = [0];
        m.read_at(n - 1, &mut back)?;
        assert_eq!(back, [n as u8]);
        let refused = m.write_at(n, &[1]).unwrap_err();
        assert!(refused.starts_with("invalid parameter: vram_memcpy_h2d: 1 bytes at byte"), "{refused}");
    }
    println!("ok");
    Ok(())
}
