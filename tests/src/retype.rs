//! Rewrites a GGUF file with its BF16 tensors in another float type. Shares no code with the
//! reader under test.

use half::{bf16, f16};
use muse_core::quant::Format;

const BF16: u32 = 30;

/// The same file with every BF16 tensor as `format`, F32 or F16.
///
/// # Panics
/// When the file is not what the reference wrote.
pub fn retype(file: &[u8], format: Format) -> Vec<u8> {
    let (kind, convert): (u32, fn(bf16) -> Vec<u8>) = match format {
        Format::F32 => (0, |x| x.to_f32().to_le_bytes().to_vec()),
        Format::F16 => (1, |x| f16::from_f32(x.to_f32()).to_le_bytes().to_vec()),
        other => panic!("{other} is not written here"),
    };
    let mut reader = Reader { file, at: 4 + 4 };
    let (tensors, keys) = (reader.u64(), reader.u64());
    for _ in 0..keys {
        reader.text();
        let kind = reader.u32();
        reader.skip_value(kind);
    }
    let mut head = file[..reader.at].to_vec();
    let infos: Vec<Info> = (0..tensors).map(|_| reader.info()).collect();
    let data = &file[reader.at.next_multiple_of(32)..];

    let mut body = Vec::new();
    for info in &infos {
        head.extend_from_slice(info.name_and_shape);
        let start = info.offset as usize;
        let values = info.values as usize;
        head.extend(if info.kind == BF16 { kind } else { info.kind }.to_le_bytes());
        head.extend((body.len() as u64).to_le_bytes());
        if info.kind == BF16 {
            let words = data[start..start + 2 * values].as_chunks::<2>().0;
            body.extend(words.iter().flat_map(|word| convert(bf16::from_le_bytes(*word))));
        } else {
            assert_eq!(info.kind, 0, "the reference's vectors are F32");
            body.extend_from_slice(&data[start..start + 4 * values]);
        }
        body.resize(body.len().next_multiple_of(32), 0);
    }
    head.resize(head.len().next_multiple_of(32), 0);
    head.extend(body);
    head
}

struct Info<'a> {
    /// Bytes of name, number of dimensions and dimensions.
    name_and_shape: &'a [u8],
    values: u64,
    kind: u32,
    offset: u64,
}

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.file[self.at - count..self.at]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().expect("4 bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().expect("8 bytes"))
    }

    fn text(&mut self) {
        let len = self.u64();
        self.bytes(len as usize);
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            4..=6 => self.at += 4,
            10..=12 => self.at += 8,
            8 => self.text(),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                (0..count).for_each(|_| self.skip_value(kind));
            }
            other => panic!("value type {other} at byte {}", self.at),
        }
    }

    fn info(&mut self) -> Info<'a> {
        let start = self.at;
        self.text();
        let dims = self.u32();
        let values = (0..dims).map(|_| self.u64()).product();
        let name_and_shape = &self.file[start..self.at];
        Info { name_and_shape, values, kind: self.u32(), offset: self.u64() }
    }
}
