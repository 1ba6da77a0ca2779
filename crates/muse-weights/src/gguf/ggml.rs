//! Ids of tensor formats in GGUF: those that are read, and names for the others.

use muse_core::quant::Format;

use crate::raw::Encoding;

/// The id of each format that is read.
const READ: &[(u32, Format)] = &[
    (0, Format::F32),
    (1, Format::F16),
    (2, Format::Q4_0),
    (3, Format::Q4_1),
    (6, Format::Q5_0),
    (7, Format::Q5_1),
    (8, Format::Q8_0),
    (10, Format::Q2K),
    (11, Format::Q3K),
    (12, Format::Q4K),
    (13, Format::Q5K),
    (14, Format::Q6K),
    (16, Format::Iq2Xxs),
    (17, Format::Iq2Xs),
    (18, Format::Iq3Xxs),
    (19, Format::Iq1S),
    (20, Format::Iq4Nl),
    (21, Format::Iq3S),
    (22, Format::Iq2S),
    (23, Format::Iq4Xs),
    (29, Format::Iq1M),
    (30, Format::Bf16),
    (39, Format::Mxfp4),
];

/// Formats of ggml that are not read: id, name, (values, bytes) of a quant block.
const FOREIGN: &[(u32, &str, (usize, usize))] = &[
    (9, "Q8_1", (32, 36)),
    (15, "Q8_K", (256, 292)),
    (24, "I8", (1, 1)),
    (25, "I16", (1, 2)),
    (26, "I32", (1, 4)),
    (27, "I64", (1, 8)),
    (28, "F64", (1, 8)),
    (34, "TQ1_0", (256, 54)),
    (35, "TQ2_0", (256, 66)),
    (40, "NVFP4", (64, 36)),
];

/// Formats that only ik_llama.cpp writes; names of repacked ones, ids from 200 on, have a suffix.
const IK: &[(u32, &str)] = &[
    (97, "Q8_0_X4"),
    (98, "Q8_1_X4"),
    (99, "Q8_2_X4"),
    (133, "Q6_0"),
    (134, "IQ1_BN"),
    (135, "IQ2_BN"),
    (136, "Q8_K64"),
    (137, "IQ2_K"),
    (138, "IQ3_K"),
    (139, "IQ4_K"),
    (140, "IQ5_K"),
    (141, "IQ6_K"),
    (144, "IQ4_KS"),
    (145, "IQ2_KS"),
    (146, "IQ4_KSS"),
    (147, "Q8_K16"),
    (148, "Q8_K32"),
    (149, "Q8_KR8"),
    (150, "Q8_K128"),
    (151, "Q8_KV"),
    (152, "IQ5_KS"),
    (153, "IQ2_KT"),
    (154, "IQ3_KT"),
    (155, "IQ4_KT"),
    (156, "IQ3_KS"),
    (157, "IQ2_KL"),
    (158, "IQ1_KT"),
    (202, "Q4_0_R8"),
    (206, "Q5_0_R4"),
    (208, "Q8_0_R8"),
    (210, "Q2_K_R4"),
    (211, "Q3_K_R4"),
    (212, "Q4_K_R4"),
    (213, "Q5_K_R4"),
    (214, "Q6_K_R4"),
    (216, "IQ2_XXS_R4"),
    (217, "IQ2_XS_R4"),
    (218, "IQ3_XXS_R4"),
    (219, "IQ1_S_R4"),
    (220, "IQ4_NL_R4"),
    (221, "IQ3_S_R4"),
    (222, "IQ2_S_R4"),
    (223, "IQ4_XS_R8"),
    (229, "IQ1_M_R4"),
    (230, "BF16_R16"),
    (233, "Q6_0_R4"),
    (335, "IQ2_BN_R4"),
    (337, "IQ2_K_R4"),
    (338, "IQ3_K_R4"),
    (339, "IQ4_K_R4"),
    (340, "IQ5_K_R4"),
    (344, "IQ4_KS_R4"),
    (352, "IQ5_KS_R4"),
    (353, "MXFP4_R8"),
    (397, "Q8_K_R16"),
    (398, "Q8_KV_R8"),
    (399, "Q8_K_R8"),
];

/// The id of a format.
pub(crate) fn format_id(format: Format) -> u32 {
    let id = READ.iter().find(|(_, read)| *read == format).map(|(id, _)| *id);
    id.expect("every format has an id: `every_format_has_one_id`")
}

/// The format of an id, and (values, bytes) of its quant block where known.
pub(super) fn encoding(id: u32) -> (Encoding, Option<(usize, usize)>) {
    if let Some(&(_, format)) = READ.iter().find(|(known, _)| *known == id) {
        let block = (format.block_values(), format.block_bytes());
        return (Encoding::Known(format), Some(block));
    }
    if let Some(&(_, name, block)) = FOREIGN.iter().find(|(known, ..)| *known == id) {
        let advice = "not read here; llama.cpp may run the file, or use one in BF16, Q8_0 or a \
                      K quantization";
        return (Encoding::Foreign { name: name.to_owned(), advice }, Some(block));
    }
    if let Some(&(_, name)) = IK.iter().find(|(known, _)| *known == id) {
        let advice = "a format of ik_llama.cpp, which runs such files; use a file made by \
                      llama.cpp here";
        return (Encoding::Foreign { name: format!("{name} (ggml type {id})"), advice }, None);
    }
    let advice = if id >= 97 {
        "ids from 97 on are formats of ik_llama.cpp, which may run the file; use a file made by \
         llama.cpp here"
    } else {
        "an id that ggml has withdrawn or that is newer than this build; convert the model again, \
         to BF16, Q8_0 or a K quantization"
    };
    (Encoding::Foreign { name: format!("ggml type {id}"), advice }, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_one_id() {
        for &format in Format::ALL {
            assert_eq!(READ.iter().filter(|(_, read)| *read == format).count(), 1, "{format}");
        }
        let mut ids: Vec<u32> = READ.iter().map(|(id, _)| *id).collect();
        ids.extend(FOREIGN.iter().map(|(id, ..)| *id));
        ids.extend(IK.iter().map(|(id, _)| *id));
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
