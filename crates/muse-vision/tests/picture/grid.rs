//! The choice of the grid, against the documented examples, a plain search, and CPython.

use muse_core::Error;
use muse_vision::{Grid, MAX_IMAGE_TOKENS, TieRule};

use TieRule::{Larger, Reference};

fn choose(height: u32, width: u32, max_tokens: usize, ties: TieRule) -> Grid {
    Grid::choose(height, width, max_tokens, ties).expect("a size")
}

/// Height and width of the picture, and of its grid in cells, for the rule of larger grids.
const EXAMPLES: [([u32; 2], [usize; 2]); 27] = [
    ([480, 640], [17, 23]),
    ([600, 800], [21, 28]),
    ([720, 1280], [26, 46]),
    ([1080, 1920], [39, 69]),
    ([1792, 1792], [64, 64]),
    ([2048, 2048], [64, 64]),
    ([3000, 4000], [55, 73]),
    ([1, 1], [1, 1]),
    ([10, 1000], [1, 36]),
    ([8000, 200], [285, 7]),
    ([180, 300], [6, 10]),
    ([1000, 1000], [36, 36]),
    ([3456, 5184], [52, 78]),
    ([40, 2000], [1, 71]),
    ([5200, 900], [153, 26]),
    ([400, 400], [15, 15]),
    ([512, 512], [19, 19]),
    ([1024, 1024], [37, 37]),
    ([256, 256], [10, 10]),
    ([300, 300], [11, 11]),
    ([500, 500], [18, 18]),
    ([640, 640], [23, 23]),
    ([800, 800], [29, 29]),
    ([56, 56], [2, 2]),
    ([100, 75], [4, 3]),
    ([40, 333], [1, 11]),
    ([84, 252], [3, 9]),
];

#[test]
fn documented_examples() {
    for ([height, width], [rows, columns]) in EXAMPLES {
        let grid = choose(height, width, MAX_IMAGE_TOKENS, Larger);
        assert_eq!([grid.height, grid.width], [rows, columns], "{width} x {height}");
        assert_eq!(grid.tokens(), rows * columns);
        assert_eq!(grid.patches(), 4 * rows * columns);
        assert_eq!([grid.pixel_height(), grid.pixel_width()], [rows * 28, columns * 28]);
    }
    for (side, cells) in [
        (400, 14),
        (512, 19),
        (1000, 36),
        (1024, 37),
        (256, 10),
        (300, 10),
        (500, 17),
        (600, 21),
        (640, 23),
        (800, 28),
    ] {
        let grid = choose(side, side, MAX_IMAGE_TOKENS, Reference);
        assert_eq!([grid.height, grid.width], [cells; 2], "{side} x {side} as the reference");
    }
}

/// Every pair of sides up to the cap, instead of four candidates: the nearest shape among those
/// that round the ideal sides up or down.
fn plain(height: u32, width: u32, max_tokens: usize) -> [usize; 2] {
    let (h, w) = (f64::from(height), f64::from(width));
    let area = h / 28.0 * (w / 28.0);
    let (ideal_h, ideal_w) = if area > max_tokens as f64 {
        let ideal_h = (max_tokens as f64 / (w / 28.0 / (h / 28.0))).sqrt();
        (ideal_h, ideal_h * (w / 28.0 / (h / 28.0)))
    } else {
        (h / 28.0, w / 28.0)
    };
    let near = |cells: usize, ideal: f64| (cells as f64 - ideal).abs() < 1.0;
    let mut best: Option<(f64, usize, [usize; 2])> = None;
    for a in (1..=max_tokens).filter(|&a| near(a, ideal_h)) {
        for b in (1..=max_tokens / a).filter(|&b| near(b, ideal_w)) {
            let distance = (a as f64 / b as f64 - h / w).abs();
            let better =
                best.is_none_or(|(d, cells, _)| distance < d || distance == d && a * b > cells);
            if better {
                best = Some((distance, a * b, [a, b]));
            }
        }
    }
    best.expect("a grid").2
}

#[test]
fn every_size_to_400_is_within_the_cap_and_equals_a_plain_search() {
    for height in 1..=400 {
        for width in 1..=400 {
            // A cap of 15 is low enough to be felt, and no shape up to 1 : 400 is too long for 4096.
            let grid = choose(height, width, MAX_IMAGE_TOKENS, Larger);
            let (cells, found) = (grid.tokens(), [grid.height, grid.width]);
            assert!((1..=MAX_IMAGE_TOKENS).contains(&cells), "{width} x {height}: {grid:?}");
            let near = (height as usize / 28 + 2) * (width as usize / 28 + 2);
            assert_eq!(found, plain(height, width, near.max(4)), "{width} x {height}");
            for cap in [1, 15, 144] {
                let grid = choose(height, width, cap, Reference);
                assert!((1..=cap).contains(&grid.tokens()), "{width} x {height}, {cap}: {grid:?}");
            }
        }
    }
}

#[test]
fn the_order_of_cpython_is_reproduced() {
    let path = muse_testkit::golden_dir().join("pictures/grids.json");
    let text = std::fs::read_to_string(path).expect("the golden");
    let golden: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let numbers = |value: &serde_json::Value| -> Vec<u32> {
        let list = value.as_array().expect("a list").iter();
        list.map(|number| number.as_u64().expect("a number") as u32).collect()
    };
    let smaller = golden["smaller"].as_array().expect("a list");
    let mut smaller: Vec<Vec<u32>> = smaller.iter().map(numbers).collect();
    smaller.sort_unstable();
    assert_eq!(smaller.len(), 3577);
    let mut found = Vec::new();
    for height in 1..400 {
        for width in 1..400 {
            let larger = choose(height, width, MAX_IMAGE_TOKENS, Larger);
            let reference = choose(height, width, MAX_IMAGE_TOKENS, Reference);
            if larger != reference {
                found.push(vec![height, width, reference.height as u32, reference.width as u32]);
            }
        }
    }
    assert!(found == smaller, "the sizes whose grid differs from the larger one");
    let others = golden["others"].as_array().expect("a list");
    assert!(others.len() >= 1000);
    for case in others {
        let case = numbers(case);
        let grid = choose(case[0], case[1], case[2] as usize, Reference);
        assert_eq!([grid.height, grid.width], [case[3], case[4]].map(|n| n as usize), "{case:?}");
    }
}

#[test]
fn shapes_too_long_for_the_cap_are_cut_to_it() {
    // The reference gives the first of these 5,409 tokens.
    for (height, width, max_tokens, expected) in [
        (28, 200_000, 4096, [1, 4096]),
        (200_000, 28, 4096, [4096, 1]),
        (1, u32::MAX, 4096, [1, 4096]),
        (1, u32::MAX, 144, [1, 144]),
        (u32::MAX, 1, 1, [1, 1]),
        (30, 100_000, 2, [1, 2]),
    ] {
        for ties in [Larger, Reference] {
            let grid = choose(height, width, max_tokens, ties);
            assert_eq!([grid.height, grid.width], expected, "{width} x {height}, {max_tokens}");
        }
    }
}

#[test]
fn nothing_is_chosen_for_nothing() {
    for (height, width, cap, part) in
        [(0, 5, 9, "5 x 0"), (5, 0, 9, "0 x 5"), (5, 5, 0, "cap is 0")]
    {
        let error = Grid::choose(height, width, cap, Larger).expect_err("no grid");
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains(part), "{error}");
    }
}
