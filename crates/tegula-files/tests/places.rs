//! Where arrays are read from and written to, and what is refused before any work.
#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tegula_files::{AnyArray, Array, Dtype, Place, Reading, Writing, check, read, write};

mod common;

use common::{floats, names, npy, one_line, safetensors, scratch};

const DATA: [f32; 6] = [1., 2., 3., 4., 5., 6.];

fn f32s(place: &Place) -> Array<f32> {
    match read(place, &Reading::default()) {
        Ok(AnyArray::F32(array)) => array,
        other => panic!("{place}: {other:?}"),
    }
}

fn put(folder: &Path, to: &str) -> Result<(), String> {
    let place = Place::parse(folder.join(to));
    write(&place, &[2, 3], &DATA, &Writing::default()).map_err(|error| error.why)
}

#[test]
fn what_is_written_is_mapped_when_read() {
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
        let array = f32s(&Place::parse(folder.path().join(from)));
        assert_eq!((&array.data[..], &array.layout.shape[..]), (&DATA[..], &[2, 3][..]), "{to}");
        assert!(array.data.is_mapped(), "{to}");
    }
    assert_eq!(names(folder.path()), ["a.npy", "a.npz", "a.safetensors", "b.npz", "b.safetensors"]);
}

#[test]
fn content_says_the_format_where_the_name_does_not() {
    let folder = scratch();
    for name in ["a.npy", "a.npz", "a.safetensors"] {
        put(folder.path(), name).unwrap();
        fs::rename(folder.path().join(name), folder.path().join("weights")).unwrap();
        assert_eq!(f32s(&Place::parse(folder.path().join("weights"))).data[..], DATA, "{name}");
    }
    assert_eq!(f32s(&Place::parse(folder.path().join("weights:c"))).data[..], DATA);
    fs::write(folder.path().join("image"), b"\x89PNG\r\n").unwrap();
    let refused = read(&Place::parse(folder.path().join("image")), &Reading::default()).unwrap_err();
    assert_eq!(refused.why, "is of no known format; give a .npy, .npz, .safetensors, .mtx or .csv file");
}

#[test]
fn pipes_are_read_by_content() {
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
    assert!(one_line(&shell("cat a.npz | \"$0\" - out.npy")).contains("error: -: is a container in a pipe"));
    assert!(one_line(&shell("cat a.npy | \"$0\" /dev/stdin:x out.npy")).contains("there is no such file"));
    assert!(one_line(&shell("printf '\\377\\377' | \"$0\" /dev/stdin out.npy")).contains("is of no known format"));
    assert!(one_line(&shell("head -c 140 a.npy | \"$0\" - -")).contains("is truncated: 2×3 f32 takes 24 bytes"));
    assert!(one_line(&shell("\"$0\" a.npy /dev/full")).contains("no space left on the device"));
}

fn npy_of_the_crate(data: &[u8]) -> Vec<u8> {
    npy("'<f4'", "(2, 3)", data)
}

#[test]
fn a_reader_that_leaves_is_told_of_in_one_line() {
    let folder = scratch();
    fs::write(folder.path().join("a.npy"), npy("'|i1'", "(1048576,)", &vec![0; 1 << 20])).unwrap();
    let mut child = Command::new(common::convert());
    child.args(["a.npy", "-"]).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    let said = one_line(&child.wait_with_output().unwrap());
    assert!(said.contains("standard output: cannot be written: its reader has gone"), "{said}");
}

#[test]
fn what_cannot_be_written_is_refused_early_and_leaves_nothing() {
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
        ("read-only.npy", Dtype::F32, 2, "the file that is there is read-only"),
        ("read-only.npy/c.npy", Dtype::F32, 2, "part of its path is no directory"),
        ("c.dat", Dtype::F32, 2, "name a .npy, .npz, .safetensors, .mtx or .csv file"),
        ("c.npy", Dtype::F8E4M3, 2, ".npy holds no f8e4m3; choose .safetensors"),
        ("c.mtx", Dtype::F32, 3, ".mtx holds no 3-D array; choose .npy, .npz or .safetensors"),
        ("c.csv", Dtype::F32, 0, ".csv holds no 0-D array"),
        ("c.npz:../../x", Dtype::F32, 2, "an array cannot be named '../../x', which leads out"),
        ("c.npz:\n", Dtype::F32, 2, "an array cannot be named '\\n'"),
        ("c.npz:", Dtype::F32, 2, "give a name after the colon"),
        ("c.safetensors:__metadata__", Dtype::F32, 2, "which means something else"),
        ("old.npz", Dtype::F32, 2, "cannot be replaced: it is damaged or no .npz file"),
        (
            "two.safetensors",
            Dtype::F32,
            2,
            "cannot be replaced: it also holds w, which would be lost; name another file",
        ),
        ("two.safetensors:w", Dtype::F32, 2, "it also holds c"),
        ("read-only.npy:w", Dtype::F32, 2, "the file that is there is read-only"),
        ("round", Dtype::F32, 2, "too many symbolic links"),
    ];
    for (to, dtype, dimensions, expected) in cases {
        let place = Place::parse(folder.path().join(to));
        let error = check(&place, dtype, dimensions).unwrap_err();
        assert!(error.why.contains(expected), "{to}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
        if dtype == Dtype::F32 && dimensions == 2 {
            assert_eq!(put(folder.path(), to), Err(error.why));
        }
    }
    assert!(check(&Place::parse(at("new.npz:w")), Dtype::F32, 2).is_ok());
    let refused = write(&Place::parse(at("c.npy")), &[2, 2], &DATA, &Writing::default()).unwrap_err();
    assert!(refused.why.contains("6 elements are given for an array of 2×2"));
    assert_eq!(names(folder.path()), before);
}

/// The system would promise such memory, and end the process when it is used.
#[test]
#[cfg(target_os = "linux")]
fn a_copy_that_does_not_fit_is_refused_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let len = u64::try_from(tegula_core::host::available().unwrap()).unwrap() / 8 + (64 << 20);
    let start = npy("'|i1'", &format!("({len},)"), &[]);
    fs::write(&path, &start).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(start.len() as u64 + len).unwrap();
    let array = read(&Place::parse(&path), &Reading::default()).unwrap();
    let why = array.cast(Dtype::F64).unwrap_err();
    assert_eq!(why, format!("does not fit in memory: {len} f64 beside the original"));
}

/// As `/dev/stdout` is, where the shell was told to append.
#[test]
#[cfg(target_os = "linux")]
fn an_open_file_grows() {
    use std::os::fd::AsRawFd;
    let folder = scratch();
    let path = folder.path().join("log");
    fs::write(&path, "kept").unwrap();
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    write(&Place::parse(format!("/proc/self/fd/{}", file.as_raw_fd())), &[2, 3], &DATA, &Writing::default()).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content.starts_with(b"kept\x93NUMPY"), "{:?}", String::from_utf8_lossy(&content));
}

#[test]
#[cfg(target_os = "linux")]
fn a_container_that_cannot_be_looked_into_is_not_replaced() {
    let (folder, unreadable) = (scratch(), "/sys/kernel/profiling");
    // A file of sysfs, which cannot be mapped.
    if !fs::metadata(unreadable).is_ok_and(|found| found.len() > 0 && !found.permissions().readonly()) {
        let required = std::env::var("TEGULA_REQUIRE_SYSFS").is_ok_and(|required| required == "1");
        assert!(!required, "there is no {unreadable}, which TEGULA_REQUIRE_SYSFS=1 asks for");
        return eprintln!("skipped: there is no {unreadable}; TEGULA_REQUIRE_SYSFS=1 forbids that");
    }
    symlink(unreadable, folder.path().join("a.npz")).unwrap();
    let why = check(&Place::parse(folder.path().join("a.npz")), Dtype::F32, 2).unwrap_err().why;
    assert!(why.starts_with("cannot be replaced: it cannot be read: ") && why.ends_with("; remove it first"), "{why}");
}

#[test]
fn an_output_may_be_one_of_the_mapped_inputs() {
    let folder = scratch();
    for name in ["a.npy", "a.npz", "a.safetensors"] {
        put(folder.path(), name).unwrap();
        fs::hard_link(folder.path().join(name), folder.path().join("kept")).unwrap();
        let place = Place::parse(folder.path().join(name));
        let input = f32s(&place);
        assert!(input.data.is_mapped());
        let doubled: Vec<f32> = input.data.iter().map(|x| 2. * x).collect();
        write(&place, &[3, 2], &doubled, &Writing::default()).unwrap();
        assert_eq!(input.data[..], DATA);
        assert_eq!(f32s(&place).data[..], doubled[..]);
        // Another hard link keeps the old content.
        assert_eq!(f32s(&Place::parse(folder.path().join("kept"))).data[..], DATA);
        fs::remove_file(folder.path().join("kept")).unwrap();
    }
}

#[test]
fn links_are_followed_and_permissions_kept() {
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
    assert_eq!(f32s(&Place::parse(at("dir/target.npy"))).data[..], DATA);

    fs::set_permissions(at("dir/target.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    put(folder.path(), "link.npy").unwrap();
    assert_eq!(mode("dir/target.npy"), 0o640);
    assert_eq!(names(&at("dir")), ["target.npy"]);
}

#[test]
fn arrays_in_c_and_fortran_order_become_layouts() {
    let folder = scratch();
    let fortran = String::from_utf8(npy("'<f4'", "(2, 3)", &[])[10..].to_vec()).unwrap().replace("False", "True ");
    let start = [b"\x93NUMPY\x01\x00", &(fortran.len() as u16).to_le_bytes()[..], fortran.as_bytes()].concat();
    fs::File::create(folder.path().join("a.npy")).unwrap().write_all(&[start, floats(6)].concat()).unwrap();
    let array = f32s(&Place::parse(folder.path().join("a.npy")));
    assert_eq!((&array.layout.strides[..], array.data.is_mapped()), (&[1, 2][..], true));
    fs::write(folder.path().join("a.npy"), npy("'<f4'", "()", &floats(1))).unwrap();
    let array = f32s(&Place::parse(folder.path().join("a.npy")));
    assert_eq!((array.layout.shape.len(), &array.data[..]), (0, &[1.][..]));
    fs::write(folder.path().join("a.npy"), npy("'<f4'", "(2, 0, 9223372036854775807)", &[])).unwrap();
    assert!(f32s(&Place::parse(folder.path().join("a.npy"))).data.is_empty());
}

#[test]
fn readers_and_writers_tell_how_far_they_are() {
    use std::cell::Cell;
    let folder = scratch();
    let (last, calls) = (Cell::new((0, 0)), Cell::new(0));
    let progress = |done, total| {
        assert!(done > last.get().0 || calls.get() == 0);
        last.set((done, total));
        calls.set(calls.get() + 1);
    };
    let place = Place::parse(folder.path().join("a.npy"));
    let data = vec![0u8; 20 << 20];
    write(&place, &[data.len()], &data, &Writing { progress: &progress }).unwrap();
    assert_eq!((last.get().0, calls.get()), ((20 << 20) + 128, 4));
    fs::write(folder.path().join("a.npy"), npy("'>i2'", "(2097152,)", &vec![0; 4 << 20])).unwrap();
    calls.set(0);
    last.set((0, 0));
    read(&place, &Reading { progress: &progress, ..Reading::default() }).unwrap();
    assert_eq!((last.get(), calls.get()), ((4 << 20, 4 << 20), 4));
}

#[test]
fn a_mapped_array_of_a_container_is_checked() {
    let folder = scratch();
    put(folder.path(), "a.npz").unwrap();
    let path = folder.path().join("a.npz");
    let mut bytes = fs::read(&path).unwrap();
    let data: Vec<u8> = DATA.iter().flat_map(|x| x.to_le_bytes()).collect();
    let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
    bytes[at + 5] ^= 1;
    fs::write(&path, bytes).unwrap();
    let why = read(&Place::parse(&path), &Reading::default()).unwrap_err().why;
    assert!(why.contains("its checksum is another"), "{why}");
}

#[test]
#[cfg(target_os = "linux")]
fn files_of_the_kernel_are_read_though_they_say_that_they_are_empty() {
    let limit = Place::parse("/proc/sys/kernel/pid_max");
    let Ok(AnyArray::F64(array)) = read(&limit, &Reading::default()) else { panic!("{limit} holds one number") };
    assert_eq!(array.layout.shape, [1, 1]);
}

#[test]
fn a_name_that_ends_as_a_directory_does_is_refused_early() {
    let folder = scratch();
    let place = Place::parse(folder.path().join("a.npy/"));
    assert!(check(&place, Dtype::F32, 2).unwrap_err().why.contains("names a directory"));
}
