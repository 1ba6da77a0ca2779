//! Which cases are run.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::cases::Case;

/// What was asked for; nothing asked for is all cases.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only cases with this in their name.
    pub case: Option<String>,
    /// Only those for a slow simulator.
    pub quick: bool,
    /// Only the last of each kind, which is its largest.
    pub brief: bool,
    /// Only those that count what they cost.
    pub cost: bool,
}

/// What came of a choice.
pub struct Chosen {
    /// To be run, at least one.
    pub cases: Vec<Case>,
    /// Left out because their programs count in cases of others.
    pub uncounted: Vec<String>,
}

impl Choice {
    /// The cases of `all` that are asked for.
    ///
    /// # Errors
    /// When there is none, with what there is.
    pub fn of(&self, all: Vec<Case>) -> Result<Chosen> {
        let name = self.case.as_deref().unwrap_or_default();
        let kinds: BTreeSet<String> = all.iter().map(|case| kind(case).to_owned()).collect();
        let mut cases: Vec<Case> = all.into_iter().filter(|c| c.name.contains(name)).collect();
        if cases.is_empty() {
            let kinds: Vec<String> = kinds.into_iter().collect();
            bail!("no case has {name:?} in its name; there are {}", kinds.join(", "));
        }
        cases.retain(|case| !self.quick || case.quick);
        let uncounted = cases.extract_if(.., |case| self.cost && !case.counts);
        let uncounted = uncounted.map(|case| case.name).collect();
        if self.brief {
            let mut seen = BTreeSet::new();
            cases.reverse();
            cases.retain(|case| seen.insert(kind(case).to_owned()));
            cases.reverse();
        }
        if cases.is_empty() {
            bail!("no case with {name:?} in its name is for --quick or --cost: leave these out");
        }
        Ok(Chosen { cases, uncounted })
    }
}

/// The operation of a case.
fn kind(case: &Case) -> &str {
    case.name.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::all;

    fn names(choice: &Choice) -> Vec<String> {
        choice.of(all()).unwrap().cases.into_iter().map(|case| case.name).collect()
    }

    fn refused(choice: &Choice) -> String {
        choice.of(all()).err().expect("there is no such case").to_string()
    }

    #[test]
    fn a_name_that_no_case_has_is_told_with_those_that_there_are() {
        let case = Some("rms_nrom".to_owned());
        let error = refused(&Choice { case, ..Choice::default() });
        assert!(error.contains("\"rms_nrom\"") && error.contains(" rms_norm, "), "{error}");
        let case = Some("layers_bf16".to_owned());
        let error = refused(&Choice { case, quick: true, ..Choice::default() });
        assert!(error.contains("--quick"), "{error}");
    }

    #[test]
    fn every_kind_has_a_largest_case() {
        let (all, brief) = (names(&Choice::default()), Choice { brief: true, ..Choice::default() });
        let brief = names(&brief);
        let kinds = |names: &[String]| -> BTreeSet<String> {
            names.iter().map(|name| name.split('/').next().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(&brief), kinds(&all));
        assert_eq!(brief.len(), kinds(&all).len());
        assert!(brief.contains(&"matmul_bfp4_b/19968/32x64/grid".to_owned()), "{brief:?}");
    }

    #[test]
    fn what_does_not_count_is_left_out_of_costs_by_name() {
        let chosen = Choice { cost: true, ..Choice::default() }.of(all()).unwrap();
        assert!(chosen.cases.iter().all(|case| case.counts));
        assert_eq!(chosen.cases.len() + chosen.uncounted.len(), all().len());
        assert!(chosen.uncounted.iter().any(|name| name.starts_with("layers_bf16/")));
    }
}
