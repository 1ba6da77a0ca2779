//! The suite that every backend passes, on the device's.

use muse_core::Result;
use muse_core::contract::KvType;
use muse_core::quant::tile::SIDE;
use muse_testkit::suite::backend::{self, Subject, Test};
use muse_tt::{DeviceOptions, Tt, TtOptions};

use super::{Bench, Case, Outcome};
use crate::lane::Needs;

/// Half a bit of BF16, for the result and for what it is made of.
const TOLERANCE: f64 = 4.0 / 512.0;
/// A simulator takes minutes to be given the table of all 131,072.
const POSITIONS: u32 = 8_192;
/// Half a second each, and there are four such walks.
const WALK: usize = 70;

/// A case a test, on all cores: a backend uses what there is.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    backend::all::<Tt>().into_iter().map(|(name, test)| Case {
        name: format!("suite/{name}"),
        quick: false,
        needs: Needs::Backend,
        counts: false,
        run: Box::new(move |bench| bench.suite(test)),
    })
}

impl Bench {
    /// A test that fails panics, and its process with it.
    fn suite(&mut self, test: Test<Tt>) -> Result<Outcome> {
        let options = TtOptions {
            device: DeviceOptions::default(),
            mix: None,
            positions: POSITIONS as usize,
        };
        let tt = Tt::on(self.programs.device(), options);
        let stored = |x| half::bf16::from_f32(x).to_f32();
        let kinds = &[KvType::Bf16];
        let subject = Subject { stored, kinds, tile: SIDE, ..Subject::new(&tt, TOLERANCE) };
        test(&Subject { positions: POSITIONS, walk: WALK, ..subject });
        Ok(Outcome::exact(&[1.0], &[1.0]))
    }
}
