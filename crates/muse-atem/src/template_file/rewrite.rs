//! Turns what chat templates use of Jinja, but minijinja lacks, into what it has. Lines stay where
//! they are, so that errors have the template's own.

use minijinja::Error;
use minijinja::machinery::{Span, Token, ast, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::walk::{Node, walk};

/// The functions that operators become.
pub(super) const PERCENT: &str = "_muse_percent";
pub(super) const CONCAT: &str = "_muse_concat";
pub(super) const ADD: &str = "_muse_add";

/// A change of the source.
struct Edit {
    at: usize,
    /// Bytes that make way.
    removes: usize,
    inserts: String,
}

/// Names of `{% generation %}` become those of a block that has its own variables, as a call block
/// has.
///
/// # Errors
/// The source has a character that begins nothing.
pub(super) fn generation_blocks(source: &str, syntax: &SyntaxConfig) -> Result<String, Error> {
    let mut edits = Vec::new();
    let mut before = None;
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token?;
        if let (Some(Token::BlockStart), Token::Ident(name @ ("generation" | "endgeneration"))) =
            (&before, &token)
        {
            let with = if *name == "generation" { "with" } else { "endwith" };
            edits.push(replace(span, with));
        }
        before = Some(token);
    }
    Ok(apply(source, edits))
}

/// Operators that take more in Python than in minijinja, and `+`, which there joins lists without
/// being paid for, become calls of functions.
///
/// # Errors
/// As [`generation_blocks`].
pub(super) fn operators(
    source: &str,
    template: &ast::Stmt<'_>,
    syntax: &SyntaxConfig,
) -> Result<String, Error> {
    let tokens = tokenize(source, false, syntax.clone()).collect::<Result<Vec<_>, _>>()?;
    let mut edits = Vec::new();
    walk(template, &mut |node| {
        let Node::Expr(ast::Expr::BinOp(operation)) = node else { return };
        let (function, operator) = match operation.op {
            ast::BinOpKind::Rem => (PERCENT, Token::Mod),
            ast::BinOpKind::Concat => (CONCAT, Token::Tilde),
            ast::BinOpKind::Add => (ADD, Token::Plus),
            _ => return,
        };
        let span = operation.span();
        if let Some(at) = last_operator(&tokens, span, &operator) {
            edits.push(insert(span.start_offset as usize, format!("{function}(")));
            edits.push(replace(at, ","));
            edits.push(insert(span.end_offset as usize, ")".to_owned()));
        }
    });
    Ok(apply(source, edits))
}

fn replace(span: Span, by: &str) -> Edit {
    let (start, end) = (span.start_offset as usize, span.end_offset as usize);
    Edit { at: start, removes: end - start, inserts: by.to_owned() }
}

fn insert(at: usize, inserts: String) -> Edit {
    Edit { at, removes: 0, inserts }
}

/// The operator of an operation, which is the last of its kind in it outside of brackets: all
/// kinds take from the left.
fn last_operator(tokens: &[(Token<'_>, Span)], within: Span, operator: &Token<'_>) -> Option<Span> {
    let from = tokens.partition_point(|(_, span)| span.start_offset < within.start_offset);
    let mut depth = 0_u32;
    let mut found = None;
    for (token, span) in &tokens[from..] {
        if span.start_offset >= within.end_offset {
            break;
        }
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                depth = depth.saturating_sub(1);
            }
            token
                if depth == 0
                    && std::mem::discriminant(token) == std::mem::discriminant(operator) =>
            {
                found = Some(*span);
            }
            _ => {}
        }
    }
    found
}

/// Changes a source. Of edits at one place the first comes first.
fn apply(source: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.at);
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for edit in edits {
        out.push_str(&source[at..edit.at]);
        out.push_str(&edit.inserts);
        at = edit.at + edit.removes;
    }
    out.push_str(&source[at..]);
    out
}
