//! Opens a GGUF model, also one split into files `NAME-00001-of-00003.gguf`: any part names the
//! others.

use super::header::{Header, parse};
use super::keys::Keys;
use crate::error::{Error, Result};
use crate::folder::{Folder, SourceFile};
use crate::raw::{RawTensor, refuse_duplicates};
use crate::settings::Settings;

/// Opens all parts of a model: the files, the header of the first one, and all tensors.
pub(super) fn open(
    folder: &mut Folder,
    name: &str,
) -> Result<(Vec<SourceFile>, Header, Vec<RawTensor>)> {
    let Some((stem, count)) = part_name(name) else {
        let file = folder.require(name, "it is the path that was given")?;
        let (header, tensors) = parse(&file, 0)?;
        let keys = Keys { file: &file, header: &header, prefix: "" };
        return match keys.integer("split.count")? {
            Some(count) if count > 1 => Err(Error::NotACheckpoint {
                path: file.name.clone(),
                found: format!("one of {count} parts under another name"),
                expected:
                    "the name that llama.cpp gave it, such as `model-00001-of-00003.gguf`, and \
                           the other parts beside it"
                        .to_owned(),
            }),
            _ => Ok((vec![file], header, tensors)),
        };
    };
    let (mut files, mut all, mut first) = (Vec::new(), Vec::new(), None);
    for number in 0..count {
        let name = format!("{stem}-{:05}-of-{count:05}.gguf", number + 1);
        let file = folder.require(&name, &format!("the model is split into {count} parts"))?;
        let (header, tensors) = parse(&file, files.len())?;
        check_part(&file, &header, number, count)?;
        all.extend(tensors);
        first.get_or_insert(header);
        files.push(file);
    }
    let header = first.expect("a count is at least 1");
    let keys = Keys { file: &files[0], header: &header, prefix: "" };
    match keys.integer("split.tensors.count")? {
        Some(count) if count != all.len() as u64 => {
            let expected = format!("{}, what the parts hold", all.len());
            return Err(keys.wrong("split.tensors.count", count, expected));
        }
        _ => {}
    }
    refuse_duplicates(&files[0].name, &all)?;
    Ok((files, header, all))
}

/// Splits a part's file name into the stem before the number and the number of parts.
fn part_name(name: &str) -> Option<(&str, u32)> {
    let name = name.strip_suffix(".gguf")?;
    let (rest, count) = name.split_at_checked(name.len().checked_sub(5)?)?;
    let rest = rest.strip_suffix("-of-")?;
    let (stem, number) = rest.split_at_checked(rest.len().checked_sub(5)?)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = stem.strip_suffix('-').filter(|_| digits(number) && digits(count))?;
    let (number, count): (u32, u32) = (number.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&number).then_some((stem, count))
}

fn check_part(file: &SourceFile, header: &Header, number: u32, count: u32) -> Result<()> {
    let keys = Keys { file, header, prefix: "" };
    for (key, expected) in [("split.no", number), ("split.count", count)] {
        match keys.integer(key)? {
            Some(found) if found == u64::from(expected) => {}
            None if count == 1 => {}
            found => {
                let found = found.map_or("nothing".to_owned(), |found| found.to_string());
                return Err(keys.wrong(key, found, format!("{expected}, by the file's name")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part_name;

    #[test]
    fn part_names() {
        assert_eq!(part_name("a-b-00002-of-00003.gguf"), Some(("a-b", 3)));
        for other in ["a.gguf", "a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "é-of-00001.gguf"]
        {
            assert_eq!(part_name(other), None, "{other}");
        }
    }
}
