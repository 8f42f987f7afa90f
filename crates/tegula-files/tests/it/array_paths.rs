//! Locations of arrays, and errors that are found before any work.
#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tegula_files::{AnyArray, Array, ArrayPath, Dtype, ReadOptions, WriteOptions, check_writable, read, write};

use crate::common::{self, floats, names, npy, one_line, safetensors, scratch};

const DATA: [f32; 6] = [1., 2., 3., 4., 5., 6.];

fn f32s(array_path: &ArrayPath) -> Array<f32> {
    match read(array_path, &ReadOptions::default()) {
        Ok(AnyArray::F32(array)) => array,
        other => panic!("{array_path}: {other:?}"),
    }
}

fn put(folder: &Path, to: &str) -> Result<(), String> {
    let array_path = ArrayPath::parse(folder.join(to));
    write(&array_path, &[2, 3], &DATA, &WriteOptions::default()).map_err(|error| error.message)
}

#[test]
fn written_array_is_memory_mapped_when_read() {
    let folder = scratch();
    for (to, from) in [
        ("a.npy", "a.npy"),
        ("a.npz", "a.npz:c"),
        ("b.npz:the weights/0", "b.npz"),
        ("b.npz:the weights/0", "b.npz:the weights/0.npy"),
        ("a.safetensors", "a.safetensors:c"),
        ("b.safetensors:\u{e9}\"\\", "b.safetensors:\u{e9}\"\\"),
    ] {
        put(folder.path(), to).unwrap();
        let array = f32s(&ArrayPath::parse(folder.path().join(from)));
        assert_eq!((&array.data[..], &array.layout.shape[..]), (&DATA[..], &[2, 3][..]), "{to}");
        assert!(array.data.is_mapped(), "{to}");
    }
    assert_eq!(names(folder.path()), ["a.npy", "a.npz", "a.safetensors", "b.npz", "b.safetensors"]);
}

#[test]
fn read_without_extension_detects_the_format() {
    let folder = scratch();
    for name in ["a.npy", "a.npz", "a.safetensors"] {
        put(folder.path(), name).unwrap();
        fs::rename(folder.path().join(name), folder.path().join("weights")).unwrap();
        assert_eq!(f32s(&ArrayPath::parse(folder.path().join("weights"))).data[..], DATA, "{name}");
    }
    assert_eq!(f32s(&ArrayPath::parse(folder.path().join("weights:c"))).data[..], DATA);
    fs::write(folder.path().join("image"), b"\x89PNG\r\n").unwrap();
    let rejected = read(&ArrayPath::parse(folder.path().join("image")), &ReadOptions::default()).unwrap_err();
    assert_eq!(rejected.message, "format not recognized; use a .npy, .npz, .safetensors, .mtx or .csv file");
}

#[test]
fn read_pipe_detects_the_format() {
    let folder = scratch();
    put(folder.path(), "a.npz").unwrap();
    fs::write(folder.path().join("a.npy"), npy("'>f4'", "(2, 3)", &[0; 24])).unwrap();
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).arg(common::convert()).current_dir(folder.path()).output().unwrap()
    };
    let output = shell("cat a.npy | \"$0\" - - | cat");
    assert_eq!(output.stdout, npy_of_the_crate(&[0; 24]));
    let output = shell("mkfifo p && (cat a.npy > p & \"$0\" p out.npy) && cat out.npy");
    assert_eq!(output.stdout, npy_of_the_crate(&[0; 24]), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        one_line(&shell("cat a.npz | \"$0\" - out.npy")).contains("error: -: containers cannot be read from a pipe")
    );
    assert!(one_line(&shell("cat a.npy | \"$0\" /dev/stdin:x out.npy")).contains("file not found"));
    assert!(one_line(&shell("printf '\\377\\377' | \"$0\" /dev/stdin out.npy")).contains("format not recognized"));
    assert!(one_line(&shell("head -c 140 a.npy | \"$0\" - -")).contains("data is truncated: 2×3 f32 needs 24 bytes"));
    assert!(one_line(&shell("\"$0\" a.npy /dev/full")).contains("no space left on the device"));
}

fn npy_of_the_crate(data: &[u8]) -> Vec<u8> {
    npy("'<f4'", "(2, 3)", data)
}

#[test]
fn write_to_closed_pipe_is_an_error_on_one_line() {
    let folder = scratch();
    fs::write(folder.path().join("a.npy"), npy("'|i1'", "(1048576,)", &vec![0; 1 << 20])).unwrap();
    let mut child = Command::new(common::convert());
    child.args(["a.npy", "-"]).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    let stderr = one_line(&child.wait_with_output().unwrap());
    assert!(stderr.contains("standard output: cannot be written: the reader closed the pipe"), "{stderr}");
}

#[test]
fn write_errors_are_found_early_and_leave_no_files() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("old.npz"), b"PK").unwrap();
    fs::write(at("read-only.npy"), b"kept").unwrap();
    fs::set_permissions(at("read-only.npy"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(at("two.safetensors"), safetensors(
        r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#, &[1, 2],
    ))
    .unwrap();
    symlink("round", at("round")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    let before = names(folder.path());
    let cases = [
        ("none/c.npy", Dtype::F32, 2, "its directory does not exist"),
        ("dir", Dtype::F32, 2, "it is a directory"),
        ("read-only.npy", Dtype::F32, 2, "the existing file is read-only"),
        ("read-only.npy/c.npy", Dtype::F32, 2, "part of the path is not a directory"),
        ("c.dat", Dtype::F32, 2, "format not recognized; use a .npy, .npz, .safetensors, .mtx or .csv file"),
        ("c.npy", Dtype::F8E4M3, 2, ".npy does not support f8e4m3; use .safetensors"),
        ("c.mtx", Dtype::F32, 3, ".mtx does not support 3-D arrays; use .npy, .npz or .safetensors"),
        ("c.csv", Dtype::F32, 0, ".csv does not support 0-D arrays"),
        ("c.npz:../../x", Dtype::F32, 2, "invalid array name '../../x': the path leads out"),
        ("c.npz:\n", Dtype::F32, 2, "invalid array name '\\n'"),
        ("c.npz:", Dtype::F32, 2, "the array name after the colon is empty"),
        ("c.safetensors:__metadata__", Dtype::F32, 2, "the name is reserved"),
        ("old.npz", Dtype::F32, 2, "cannot be replaced: not a .npz file or archive is corrupt"),
        (
            "two.safetensors",
            Dtype::F32,
            2,
            "cannot be replaced: it also contains w, which would be lost; use another file",
        ),
        ("two.safetensors:w", Dtype::F32, 2, "it also contains c"),
        ("read-only.npy:w", Dtype::F32, 2, "the existing file is read-only"),
        ("round", Dtype::F32, 2, "too many symbolic links"),
    ];
    for (to, dtype, dimensions, expected) in cases {
        let array_path = ArrayPath::parse(folder.path().join(to));
        let error = check_writable(&array_path, dtype, dimensions).unwrap_err();
        assert!(error.message.contains(expected), "{to}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
        if dtype == Dtype::F32 && dimensions == 2 {
            assert_eq!(put(folder.path(), to), Err(error.message));
        }
    }
    assert!(check_writable(&ArrayPath::parse(at("new.npz:w")), Dtype::F32, 2).is_ok());
    let rejected = write(&ArrayPath::parse(at("c.npy")), &[2, 2], &DATA, &WriteOptions::default()).unwrap_err();
    assert!(rejected.message.contains("6 elements do not match shape 2×2"));
    assert_eq!(names(folder.path()), before);
}

/// The system would overcommit the memory and terminate the process on use.
#[test]
#[cfg(target_os = "linux")]
fn cast_beyond_memory_is_rejected_before_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let len = u64::try_from(tegula_core::host::available().unwrap()).unwrap() / 8 + (64 << 20);
    let start = npy("'|i1'", &format!("({len},)"), &[]);
    fs::write(&path, &start).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(start.len() as u64 + len).unwrap();
    let array = read(&ArrayPath::parse(&path), &ReadOptions::default()).unwrap();
    let message = array.cast(Dtype::F64).unwrap_err();
    assert_eq!(message, format!("does not fit in memory: {len} f64 in addition to the original"));
}

/// As for `/dev/stdout` when the shell appends.
#[test]
#[cfg(target_os = "linux")]
fn write_to_open_file_appends() {
    use std::os::fd::AsRawFd;
    let folder = scratch();
    let path = folder.path().join("log");
    fs::write(&path, "kept").unwrap();
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    write(&ArrayPath::parse(format!("/proc/self/fd/{}", file.as_raw_fd())), &[2, 3], &DATA, &WriteOptions::default())
        .unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content.starts_with(b"kept\x93NUMPY"), "{:?}", String::from_utf8_lossy(&content));
}

#[test]
#[cfg(target_os = "linux")]
fn write_does_not_replace_an_unreadable_container() {
    let (folder, unreadable) = (scratch(), "/sys/kernel/profiling");
    // A file of sysfs, which cannot be mapped.
    if !fs::metadata(unreadable).is_ok_and(|found| found.len() > 0 && !found.permissions().readonly()) {
        let required = std::env::var("TEGULA_REQUIRE_SYSFS").is_ok_and(|required| required == "1");
        assert!(!required, "{unreadable} not found, required by TEGULA_REQUIRE_SYSFS=1");
        return eprintln!("skipped: {unreadable} not found");
    }
    symlink(unreadable, folder.path().join("a.npz")).unwrap();
    let message = check_writable(&ArrayPath::parse(folder.path().join("a.npz")), Dtype::F32, 2).unwrap_err().message;
    assert!(
        message.starts_with("cannot be replaced: cannot be read: ") && message.ends_with("; remove it first"),
        "{message}"
    );
}

#[test]
fn write_may_replace_a_mapped_input() {
    let folder = scratch();
    for name in ["a.npy", "a.npz", "a.safetensors"] {
        put(folder.path(), name).unwrap();
        fs::hard_link(folder.path().join(name), folder.path().join("kept")).unwrap();
        let array_path = ArrayPath::parse(folder.path().join(name));
        let input = f32s(&array_path);
        assert!(input.data.is_mapped());
        let doubled: Vec<f32> = input.data.iter().map(|x| 2. * x).collect();
        write(&array_path, &[3, 2], &doubled, &WriteOptions::default()).unwrap();
        assert_eq!(input.data[..], DATA);
        assert_eq!(f32s(&array_path).data[..], doubled[..]);
        // Another hard link keeps the old content.
        assert_eq!(f32s(&ArrayPath::parse(folder.path().join("kept"))).data[..], DATA);
        fs::remove_file(folder.path().join("kept")).unwrap();
    }
}

#[test]
fn write_follows_links_and_keeps_permissions() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
    fs::write(at("ordinary"), b"").unwrap();
    put(folder.path(), "new.npy").unwrap();
    assert_eq!(mode("new.npy"), mode("ordinary"));

    fs::create_dir(at("dir")).unwrap();
    symlink("dir/target.npy", at("link.npy")).unwrap();
    symlink("link.npy", at("link to link.npy")).unwrap();
    put(folder.path(), "link to link.npy").unwrap();
    assert!(at("link.npy").is_symlink() && at("link to link.npy").is_symlink());
    assert_eq!(f32s(&ArrayPath::parse(at("dir/target.npy"))).data[..], DATA);

    fs::set_permissions(at("dir/target.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    put(folder.path(), "link.npy").unwrap();
    assert_eq!(mode("dir/target.npy"), 0o640);
    assert_eq!(names(&at("dir")), ["target.npy"]);
}

#[test]
fn read_fortran_order_is_a_layout() {
    let folder = scratch();
    let fortran = String::from_utf8(npy("'<f4'", "(2, 3)", &[])[10..].to_vec()).unwrap().replace("False", "True ");
    let start = [b"\x93NUMPY\x01\x00", &(fortran.len() as u16).to_le_bytes()[..], fortran.as_bytes()].concat();
    fs::File::create(folder.path().join("a.npy")).unwrap().write_all(&[start, floats(6)].concat()).unwrap();
    let array = f32s(&ArrayPath::parse(folder.path().join("a.npy")));
    assert_eq!((&array.layout.strides[..], array.data.is_mapped()), (&[1, 2][..], true));
    fs::write(folder.path().join("a.npy"), npy("'<f4'", "()", &floats(1))).unwrap();
    let array = f32s(&ArrayPath::parse(folder.path().join("a.npy")));
    assert_eq!((array.layout.shape.len(), &array.data[..]), (0, &[1.][..]));
    fs::write(folder.path().join("a.npy"), npy("'<f4'", "(2, 0, 9223372036854775807)", &[])).unwrap();
    assert!(f32s(&ArrayPath::parse(folder.path().join("a.npy"))).data.is_empty());
}

#[test]
fn read_and_write_report_progress() {
    use std::cell::Cell;
    let folder = scratch();
    let (last, calls) = (Cell::new((0, 0)), Cell::new(0));
    let progress = |done, total| {
        assert!(done > last.get().0 || calls.get() == 0);
        last.set((done, total));
        calls.set(calls.get() + 1);
    };
    let array_path = ArrayPath::parse(folder.path().join("a.npy"));
    let data = vec![0u8; 20 << 20];
    write(&array_path, &[data.len()], &data, &WriteOptions { progress: &progress }).unwrap();
    assert_eq!((last.get().0, calls.get()), ((20 << 20) + 128, 4));
    fs::write(folder.path().join("a.npy"), npy("'>i2'", "(2097152,)", &vec![0; 4 << 20])).unwrap();
    calls.set(0);
    last.set((0, 0));
    read(&array_path, &ReadOptions { progress: &progress, ..ReadOptions::default() }).unwrap();
    assert_eq!((last.get(), calls.get()), ((4 << 20, 4 << 20), 4));
}

#[test]
fn npz_mapped_array_checksum_is_verified() {
    let folder = scratch();
    put(folder.path(), "a.npz").unwrap();
    let path = folder.path().join("a.npz");
    let mut bytes = fs::read(&path).unwrap();
    let data: Vec<u8> = DATA.iter().flat_map(|x| x.to_le_bytes()).collect();
    let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
    bytes[at + 5] ^= 1;
    fs::write(&path, bytes).unwrap();
    let message = read(&ArrayPath::parse(&path), &ReadOptions::default()).unwrap_err().message;
    assert!(message.contains("checksum mismatch"), "{message}");
}

#[test]
#[cfg(target_os = "linux")]
fn read_procfs_file_of_size_zero() {
    let limit = ArrayPath::parse("/proc/sys/kernel/pid_max");
    let Ok(AnyArray::F64(array)) = read(&limit, &ReadOptions::default()) else { panic!("{limit} holds one number") };
    assert_eq!(array.layout.shape, [1, 1]);
}

#[test]
fn write_path_with_trailing_slash_is_rejected() {
    let folder = scratch();
    let array_path = ArrayPath::parse(folder.path().join("a.npy/"));
    assert!(check_writable(&array_path, Dtype::F32, 2).unwrap_err().message.contains("it is a directory"));
}
