//! Plans memory: how many KV blocks the cache gets, how large the buffers of a pass are, and what
//! both take beside the weights.

use std::fmt;

use muse_core::contract::{
    Backend, BlockBytes, BlockCount, DrafterSpec, Footprint, KV_BLOCK_SIZE, KvPool, KvType,
    ModelSizes, TensorInfo, TextSpec, WeightSource,
};
use muse_core::engine::EngineOptions;
use muse_core::{Error, Result};
use muse_kv::{Pool, PoolOptions};

use super::LoadOptions;
use super::model_card::text_tensors;
use super::models::Footprints;

/// The most tokens of a step, unless the context is shorter.
const MAX_NUM_BATCHED_TOKENS: usize = 2048;
/// Positions whose logits [`super::Loaded::logits`] computes at a time.
const PROMPT_LOGITS_ROWS: usize = 64;
/// Share of the free memory that is planned with; the rest is left to other allocations.
const MEMORY_SHARE: f64 = 0.9;
/// A context that no flag sets is not shortened below this for lack of memory.
const MIN_CONTEXT: u32 = 4096;

/// How much memory a model takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryPlan {
    /// Weights as the device holds them, the drafter's included, in bytes.
    pub weights: u64,
    /// K and V of the full-attention layers, in bytes.
    pub full_kv: u64,
    /// K and V of the sliding-window layers, in bytes.
    pub window_kv: u64,
    /// K and V of the drafter, in bytes.
    pub drafter_kv: u64,
    /// Buffers of a pass, logits and the pool's records of KV blocks, in bytes.
    pub scratch: u64,
    /// How K and V are stored.
    pub kv: KvType,
    /// Positions of a sequence.
    pub context: u32,
    /// Sequences of full length that fit.
    pub parallel: usize,
    /// Tokens of a pass whose logits are computed, at most.
    pub max_logits_rows: usize,
    /// Positions that the checkpoint allows, when memory holds fewer.
    pub cut_from: Option<u32>,
}

impl MemoryPlan {
    /// All of it, in bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.full_kv + self.window_kv + self.drafter_kv + self.scratch
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kv = self.full_kv + self.window_kv + self.drafter_kv;
        write!(
            f,
            "weights {}; K/V cache {} as {} for {} x {} positions ({} in full-attention \
             layers, {} in sliding-window layers, {} in the drafter); scratch {}",
            Bytes(self.weights),
            Bytes(kv),
            format!("{:?}", self.kv).to_lowercase(),
            self.parallel,
            self.context,
            Bytes(self.full_kv),
            Bytes(self.window_kv),
            Bytes(self.drafter_kv),
            Bytes(self.scratch),
        )?;
        match self.cut_from {
            Some(all) => write!(
                f,
                "; the checkpoint allows {all} positions, memory does not: --context sets another \
                 length, --kv q8_0 needs half"
            ),
            None => Ok(()),
        }
    }
}

struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = self.0 as f64 / 1e6;
        match mb {
            ..1000.0 => write!(f, "{mb:.1} MB"),
            _ => write!(f, "{:.2} GB", mb / 1000.0),
        }
    }
}

/// The sizes that model, drafter, KV pool and engine are built with.
pub(super) struct Sizes {
    pub(super) pool: PoolOptions,
    pub(super) engine: EngineOptions,
    pub(super) plan: MemoryPlan,
    max_num_batched_tokens: usize,
}

/// What the KV cache of one sequence takes, by its length.
struct SequenceDemand {
    /// With no KV blocks yet.
    pool: PoolOptions,
    /// Positions of a draft block, which may reach past the last position of the context.
    draft_block: u32,
    /// Bytes of a KV block in the model's layers.
    target: BlockBytes,
    /// Bytes of a KV block in the drafter's layers.
    drafter: BlockBytes,
}

impl SequenceDemand {
    fn new(footprints: &Footprints<'_>, kv: KvType, max_step_tokens: usize) -> Self {
        let Footprints { target, drafter, draft_block } = footprints;
        let drafter_reach = drafter.as_ref().map_or(0, |drafter| drafter.window_reach());
        Self {
            pool: PoolOptions {
                window_reach: target.window_reach().max(drafter_reach),
                max_step_tokens: max_step_tokens as u32,
                ..PoolOptions::default()
            },
            draft_block: *draft_block as u32,
            target: target.block_bytes(kv),
            drafter: drafter.as_ref().map_or_else(Default::default, |d| d.block_bytes(kv)),
        }
    }

    fn blocks(&self, context: u32) -> BlockCount {
        Pool::new(self.pool).worst_case(context.saturating_add(self.draft_block))
    }

    /// Bytes of one sequence: K and V, and the pool's records of its KV blocks.
    fn bytes(&self, context: u32) -> u64 {
        let blocks = self.blocks(context);
        let full = self.target.full + self.drafter.full + muse_kv::BYTES_PER_BLOCK;
        let window = self.target.window + self.drafter.window;
        (full * blocks.full + window * blocks.window) as u64
    }
}

impl Sizes {
    /// Fits the KV cache into the memory that is free.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that the checkpoint does not allow, [`Error::Exhausted`] when
    /// memory cannot hold what was asked for, or not even [`MIN_CONTEXT`] positions.
    pub(super) fn fit(
        backend: &impl Backend,
        text: &TextSpec,
        source: &dyn WeightSource,
        drafter: Option<&dyn WeightSource>,
        options: &LoadOptions,
    ) -> Result<Self> {
        let sources = [Some(source), drafter].into_iter().flatten();
        let weights = sources.map(|source| loaded_bytes(backend, source)).sum();
        let spec = drafter.and_then(|drafter| drafter.spec().drafter.as_ref());
        Self::fit_into(backend.free_memory()?, weights, text, spec, options)
    }

    /// As [`Sizes::fit`] on a device with all the memory that it takes.
    pub(super) fn estimate(
        backend: &impl Backend,
        text: &TextSpec,
        source: &dyn WeightSource,
        drafter: Option<&dyn WeightSource>,
        options: &LoadOptions,
    ) -> Result<Self> {
        let sources = [Some(source), drafter].into_iter().flatten();
        let weights = sources.map(|source| loaded_bytes(backend, source)).sum();
        let spec = drafter.and_then(|drafter| drafter.spec().drafter.as_ref());
        Self::fit_into(None, weights, text, spec, options)
    }

    fn fit_into(
        free: Option<u64>,
        weights: u64,
        text: &TextSpec,
        spec: Option<&DrafterSpec>,
        options: &LoadOptions,
    ) -> Result<Self> {
        let max = u32::try_from(text.max_positions).unwrap_or(u32::MAX);
        check(options, max)?;
        let wanted = options.context.unwrap_or(max);
        let footprints = Footprints::new(text, spec);
        let block = footprints.draft_block.max(1);
        let max_tokens = MAX_NUM_BATCHED_TOKENS.min(wanted as usize).max(block);
        let demand = SequenceDemand::new(&footprints, options.kv, max_tokens);

        let max_num_seqs = options.default_max_parallel.max(options.parallel.unwrap_or(1)).max(1);
        let min_logits = if options.logits { PROMPT_LOGITS_ROWS } else { 1 };
        let max_logits_rows = (max_num_seqs * block).max(min_logits);
        let defaults = EngineOptions::default();
        let mut sizes = Self {
            max_num_batched_tokens: max_tokens,
            pool: demand.pool,
            engine: EngineOptions {
                max_num_seqs,
                max_num_batched_tokens: max_tokens,
                target_itl: options.target_itl,
                queue: options.max_queued_requests.unwrap_or(defaults.queue),
                max_draft: options.max_draft.map_or(usize::MAX, |max| max as usize),
                adapt_draft: options.max_draft.is_none(),
                ..defaults
            },
            plan: MemoryPlan { weights, max_logits_rows, kv: options.kv, ..MemoryPlan::default() },
        };
        let scratch_bytes = |of: &dyn Footprint| of.scratch_bytes(&sizes.model()) as u64;
        let drafter = footprints.drafter.as_deref().map_or(0, scratch_bytes);
        sizes.plan.scratch = scratch_bytes(&*footprints.target) + drafter;
        let context = sizes.fit_cache(free, &demand, options, wanted)?;
        sizes.engine.max_positions = context;
        sizes.plan.context = context;
        sizes.plan.cut_from = (context < wanted).then_some(wanted);
        Ok(sizes)
    }

    /// Gives the KV cache the memory that is left. Returns the positions of a sequence.
    fn fit_cache(
        &mut self,
        free: Option<u64>,
        demand: &SequenceDemand,
        options: &LoadOptions,
        wanted: u32,
    ) -> Result<u32> {
        let fixed = self.plan.weights + self.plan.scratch;
        let left = match free {
            Some(free) => ((free as f64 * MEMORY_SHARE) as u64).saturating_sub(fixed),
            None => u64::MAX,
        };
        let context = match options.context {
            Some(_) => wanted,
            None => longest(wanted, &|context| demand.bytes(context) <= left),
        };
        let each = demand.bytes(context);
        let fits = (left / each.max(1)) as usize;
        let parallel =
            options.parallel.unwrap_or_else(|| fits.min(options.default_max_parallel)).max(1);
        if parallel > fits {
            return Err(Error::Exhausted(format!(
                "{parallel} x {context} positions of K/V cache take {}, {} of memory are left \
                 beside {} of weights and {} of scratch; lower --context or --parallel, use --kv \
                 q8_0 or a smaller file",
                Bytes(each.saturating_mul(parallel as u64)),
                Bytes(left),
                Bytes(self.plan.weights),
                Bytes(self.plan.scratch)
            )));
        }
        let blocks = demand.blocks(context);
        let (full, window) = (blocks.full * parallel, blocks.window * parallel);
        self.pool = PoolOptions { blocks: BlockCount { full, window }, ..self.pool };
        let SequenceDemand { target, drafter, .. } = demand;
        self.plan = MemoryPlan {
            full_kv: (target.full * full) as u64,
            window_kv: (target.window * window) as u64,
            drafter_kv: (drafter.full * full + drafter.window * window) as u64,
            scratch: self.plan.scratch + (muse_kv::BYTES_PER_BLOCK * full) as u64,
            parallel,
            ..self.plan
        };
        Ok(context)
    }

    /// What model and drafter are built with.
    pub(super) fn model(&self) -> ModelSizes {
        ModelSizes {
            kv: self.plan.kv,
            blocks: self.pool.blocks,
            max_num_seqs: self.engine.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_logits_rows: self.plan.max_logits_rows,
        }
    }
}

fn check(options: &LoadOptions, max: u32) -> Result<()> {
    // A KV cache holds at least one KV block.
    let min = max.min(KV_BLOCK_SIZE as u32);
    match options {
        LoadOptions { context: Some(context), .. } if !(min..=max).contains(context) => {
            Err(Error::Invalid(format!(
                "--context is {context}, this checkpoint allows {min} to {max} positions"
            )))
        }
        LoadOptions { parallel: Some(0), .. } => {
            Err(Error::Invalid("--parallel is 0, it must be at least 1".into()))
        }
        _ => Ok(()),
    }
}

/// The longest context up to `max` that `fits`, but not below [`MIN_CONTEXT`]: only a flag may ask
/// for less.
fn longest(max: u32, fits: &dyn Fn(u32) -> bool) -> u32 {
    let mut context = max;
    while context > MIN_CONTEXT && !fits(context) {
        context = (context / 8 * 7).max(MIN_CONTEXT);
    }
    context
}

/// Bytes that the tensors of a checkpoint take once they are loaded.
fn loaded_bytes(backend: &impl Backend, source: &dyn WeightSource) -> u64 {
    let tensor = |tensor: &TensorInfo| match tensor.rows {
        // A vector becomes a buffer.
        1 => (size_of::<f32>() * tensor.cols) as u64,
        _ => backend.weight_bytes(tensor),
    };
    text_tensors(source).map(tensor).sum()
}

#[cfg(all(test, feature = "nano"))]
mod tests {
    use muse_core::contract::{CheckpointSpec, GenerationDefaults, Vocabulary, WeightView};
    use muse_core::quant::Format;
    use muse_testkit::fake::FakeBackend;
    use muse_weights::Checkpoint;

    use super::*;
    use crate::runtime::nano;

    fn fit(free: Option<u64>, options: &LoadOptions) -> Result<Sizes> {
        let (target, drafter) = (nano::target()?, nano::drafter()?);
        let mut text = target.spec().text.clone().expect("a text model");
        text.max_positions = 131_072;
        let device = FakeBackend::default();
        let weights = loaded_bytes(&device, &target) + loaded_bytes(&device, &drafter);
        Sizes::fit_into(free, weights, &text, drafter.spec().drafter.as_ref(), options)
    }

    #[test]
    fn the_cache_is_as_large_as_memory_allows() {
        let options = LoadOptions { default_max_parallel: 8, ..LoadOptions::default() };
        let plan = fit(None, &options).expect("a plan").plan;
        assert_eq!((plan.context, plan.parallel, plan.cut_from), (131_072, 8, None));
        // Two full layers of 2 K/V heads of 64 as bf16: 1 KiB a position.
        let positions = (131_072 + 64) * 8;
        assert_eq!(plan.full_kv, positions * 1024);
        let plan = fit(Some(650 << 20), &options).expect("a plan").plan;
        assert_eq!((plan.context, plan.parallel), (131_072, 3), "{plan}");
        let plan = fit(Some(160 << 20), &options).expect("a plan").plan;
        assert!(plan.context < 131_072 && plan.parallel == 1, "{plan}");
        assert_eq!(plan.cut_from, Some(131_072));
        let kv = plan.full_kv + plan.window_kv + plan.drafter_kv;
        assert!(kv + plan.weights + plan.scratch < 144 << 20, "{plan}");
    }

    /// A checkpoint with another list of tensors.
    struct WithTensors(Checkpoint, Vec<TensorInfo>);

    impl WeightSource for WithTensors {
        fn spec(&self) -> &CheckpointSpec {
            self.0.spec()
        }

        fn generation(&self) -> &GenerationDefaults {
            self.0.generation()
        }

        fn vocabulary(&self) -> Result<Option<Vocabulary>> {
            self.0.vocabulary()
        }

        fn tensors(&self) -> &[TensorInfo] {
            &self.1
        }

        fn weight(&self, name: &str) -> Result<WeightView<'_>> {
            self.0.weight(name)
        }
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn weights_are_planned_as_the_device_packs_them() -> Result<()> {
        let tensor = |name: &str, format, rows, cols| TensorInfo {
            name: name.to_owned(),
            format,
            rows,
            cols,
        };
        let tensors = vec![
            tensor("blk.0.ffn_up.weight", Format::Q2K, 40, 512),
            tensor("output_norm.weight", Format::Bf16, 1, 512),
        ];
        let source = WithTensors(nano::target()?, tensors);
        let text = source.spec().text.clone().expect("a text model");
        let options = LoadOptions { context: Some(64), ..LoadOptions::default() };
        let cpu = |exact| {
            let cpu = muse_cpu::Cpu::new(muse_cpu::CpuOptions { threads: Some(1) })?;
            Ok::<_, Error>(if exact { cpu.exact() } else { cpu })
        };
        // 84 bytes for 256 values in the file; 168 packed, in panels of 16 rows.
        let packed = if cfg!(target_arch = "x86_64") { 48 * 2 * 168 } else { 40 * 2 * 84 };
        for (exact, matrix) in [(false, packed), (true, 40 * 2 * 84)] {
            let plan = Sizes::fit(&cpu(exact)?, &text, &source, None, &options)?.plan;
            assert_eq!(plan.weights, matrix + 4 * 512, "exact: {exact}");
        }
        Ok(())
    }

    #[test]
    fn what_cannot_fit_at_all_is_refused() {
        let all = fit(None, &LoadOptions::default()).expect("a plan").plan;
        // Scratch alone comes to more than the weights: 2048 rows of everything.
        assert!(all.scratch > all.weights && all.weights > 1 << 20, "{all}");
        for free in [0, all.weights, all.weights + all.scratch] {
            let error = fit(Some(free), &LoadOptions::default()).err().expect("no room");
            assert!(matches!(error, Error::Exhausted(_)), "{error:?}");
            let error = error.to_string();
            let beside = format!("beside {} of weights and", Bytes(all.weights));
            assert!(error.contains(&beside) && error.contains("of scratch"), "{error}");
        }
    }

    #[test]
    fn what_is_asked_for_is_given_or_refused_with_numbers() {
        let options = LoadOptions {
            context: Some(1000),
            parallel: Some(3),
            kv: KvType::Q8_0,
            ..LoadOptions::default()
        };
        let sizes = fit(Some(160 << 20), &options).expect("a plan");
        assert_eq!((sizes.plan.context, sizes.plan.parallel), (1000, 3));
        assert_eq!(sizes.pool.blocks.full, 3 * 1016_usize.div_ceil(64));
        let options = LoadOptions { context: Some(100_000), parallel: Some(9), ..options };
        let error = fit(Some(160 << 20), &options).err().expect("too much").to_string();
        assert!(error.contains("9 x 100000") && error.contains("--kv q8_0"), "{error}");
        for context in [0, 63, 131_073, u32::MAX] {
            let options = LoadOptions { context: Some(context), ..LoadOptions::default() };
            let error = fit(None, &options).err().expect("no such context").to_string();
            assert!(error.contains(&format!("--context is {context}")), "{error}");
            assert!(error.contains("64 to 131072"), "{error}");
        }
        let options = LoadOptions { parallel: Some(0), ..LoadOptions::default() };
        assert!(matches!(fit(None, &options), Err(Error::Invalid(_))));
    }
}
