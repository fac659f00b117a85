// SPDX-License-Identifier: MIT
//! Store one block and fetch it again. The calls that are inline in C are exported, too, so
//! that declarations are all a program needs. usage: put_get-rs POOL
#![allow(dead_code)] // fields that C reads or writes

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};

#[repr(C)]
struct Op([u64; 10]); // struct kvblk_op: kvblk_prep_*() fill it in
#[repr(C)]
struct Piece([u64; 3]); // struct kvblk_piece
#[repr(C)]
#[derive(Default)]
struct Outcome { cookie: u64, res: i32, flags: u32, value_len: u32, reserved: u32, tags: [u64; 2] }

extern "C" {
    fn kvblk_open(pool: *const c_char, flags: c_uint, kv: *mut *mut c_void) -> c_int;
    fn kvblk_close(kv: *mut c_void);
    fn kvblk_prep_piece(p: *mut Piece, mem: *const c_void, at: usize, len: usize) -> c_int;
    fn kvblk_prep_put(op: *mut Op, key: *const u8, len: usize, pieces: *const Piece, nr: c_uint);
    fn kvblk_prep_get(op: *mut Op, key: *const u8, len: usize, pieces: *const Piece, nr: c_uint);
    fn kvblk_submit_sized(kv: *mut c_void, ops: *const Op, nr: c_uint, results: *mut Outcome,
                          size: usize, flags: c_uint) -> c_int;
    fn kvblk_delete(kv: *mut c_void, key: *const u8, len: usize) -> c_int;
    fn kvblk_result_text(res: c_int) -> *const c_char;
}

fn main() {
    let pool = CString::new(std::env::args().nth(1).expect("usage: put_get-rs POOL")).unwrap();
    let (key, block, mut back) = (b"example/rust", vec![b'x'; 100_000], vec![0u8; 100_000]);
    let (mut kv, mut results) = (std::ptr::null_mut(), [Outcome::default(), Outcome::default()]);
    let (mut op, mut piece) = (Op([0; 10]), Piece([0; 3]));
    unsafe {
        let err = kvblk_open(pool.as_ptr(), 0, &mut kv);
        assert!(err == 0, "{}", std::io::Error::from_raw_os_error(-err));
        for (i, addr) in [block.as_ptr() as usize, back.as_mut_ptr() as usize].into_iter().enumerate() {
            let prep = if i == 0 { kvblk_prep_put } else { kvblk_prep_get };
            assert_eq!(kvblk_prep_piece(&mut piece, std::ptr::null(), addr, block.len()), 0);
            prep(&mut op, key.as_ptr(), key.len(), &piece, 1);
            let size = std::mem::size_of::<Outcome>();
            assert_eq!(kvblk_submit_sized(kv, &op, 1, &mut results[i], size, 0), 0);
            println!("{}", CStr::from_ptr(kvblk_result_text(results[i].res)).to_str().unwrap());
        }
        kvblk_delete(kv, key.as_ptr(), key.len());
        kvblk_close(kv);
    }
    assert!(results[1].res as usize == block.len() && back == block, "another block came back");
}
