//! Programs as plain data: what is compiled, and with which arguments it is run.

use muse_core::quant::tile::TileFormat;

use crate::buffer::Buffer;
use crate::cores::{Core, Cores};

/// A queue of pages between the kernels of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CircularBuffer {
    /// What kernels call it by.
    pub index: u32,
    /// How the values of a page are stored; a page is a tile.
    pub format: TileFormat,
    /// Room in pages.
    pub pages: u32,
    /// Whether its F32 values are only copied to the registers, and with all of their bits: what
    /// is multiplied or reduced from a buffer has 19.
    pub whole: bool,
}

/// What a kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Processor {
    /// Moves data in, by custom.
    Reader,
    /// Moves data out, by custom.
    Writer,
    /// Computes, with sums in f32 and the most exact products.
    Compute,
}

/// How a kernel finds the pages of a buffer, as arguments at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accessor {
    /// Pages dealt out to all banks of DRAM.
    Dram,
}

/// A kernel and what it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The C++ of it.
    pub source: &'static str,
    /// What it runs on.
    pub processor: Processor,
    /// Numbers known when it is compiled.
    pub constants: Vec<u32>,
    /// Behind them, one a buffer that it reads or writes. Where these are is what its arguments at run
    /// time begin with, as common ones, for all cores share them; the others count from 0.
    pub accessors: Vec<Accessor>,
    /// Names that the preprocessor knows, with the value 1.
    pub defines: Vec<&'static str>,
}

/// All of a program that is known when it is compiled. Equal shapes are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Where it runs.
    pub cores: Cores,
    /// On each core.
    pub buffers: Vec<CircularBuffer>,
    /// On each core.
    pub kernels: Vec<Kernel>,
    /// How many each core has; kernels call them by their numbers, and each begins at 0.
    pub semaphores: u32,
}

/// An argument of a kernel at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// Where a buffer is.
    Address(u64),
    /// A number.
    Number(u32),
    /// A real number, which the kernel takes as its bits.
    Real(f32),
}

impl Arg {
    /// Where `buffer` is.
    pub fn address(buffer: &Buffer) -> Self {
        Self::Address(buffer.address())
    }

    fn word(self) -> u32 {
        match self {
            Self::Address(at) => u32::try_from(at).expect("banks have 32 bits of addresses"),
            Self::Number(number) => number,
            Self::Real(real) => real.to_bits(),
        }
    }
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is compiled.
    pub shape: Shape,
    /// For each kernel of the shape: every core's arguments, where its buffers are first.
    pub args: Vec<Vec<(Core, Vec<Arg>)>>,
}

impl Plan {
    /// For each kernel: the arguments of all cores, then those of every core.
    pub(super) fn words(&self) -> impl Iterator<Item = (Vec<u32>, Vec<(Core, Vec<u32>)>)> {
        let words = |args: &[Arg]| args.iter().map(|arg| arg.word()).collect::<Vec<u32>>();
        assert_eq!(self.args.len(), self.shape.kernels.len(), "arguments of every kernel");
        self.shape.kernels.iter().zip(&self.args).map(move |(kernel, args)| {
            let count = kernel.accessors.len();
            let shared = args.first().map_or(&[][..], |(_, args)| &args[..count]);
            let own = args.iter().map(|(core, args)| {
                assert_eq!(args[..count], *shared, "where buffers are is the same on all cores");
                (*core, words(&args[count..]))
            });
            (words(shared), own.collect())
        })
    }

    /// How many cores it runs on.
    pub fn cores(&self) -> u64 {
        u64::from(self.shape.cores.count())
    }
}
