//! The contract suite of backends on the backend of the device.

use muse_core::Result;
use muse_core::contract::KvType;
use muse_core::quant::tile::SIDE;
use muse_testkit::suite::backend::{self, Subject, Test};
use muse_tt::{DeviceOptions, Tt, TtOptions};

use super::{Case, Harness, Outcome};
use crate::lane::Requirement;

/// Half a step of BF16 for the result and for its operands.
const TOLERANCE: f64 = 4.0 / 512.0;
/// Fewer than the 131,072 of the model, whose rope table takes a simulator minutes to receive.
const POSITIONS: u32 = 8_192;
/// A step takes half a second, and the suite makes four walks.
const WALK: usize = 70;

/// One case per test of the suite, on all cores.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    backend::all::<Tt>().into_iter().map(|(name, test)| Case {
        name: format!("suite/{name}"),
        quick: false,
        requirement: Requirement::Backend,
        has_cost: false,
        run: Box::new(move |harness| harness.suite(test)),
    })
}

impl Harness {
    /// A test that fails panics, which ends the process of the case.
    fn suite(&mut self, test: Test<Tt>) -> Result<Outcome> {
        let options = TtOptions {
            device: DeviceOptions::default(),
            bfp_policy: None,
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
