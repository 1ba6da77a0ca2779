//! Refuses templates that name what there is not: a chat that comes to such a name would fail.

use std::collections::HashSet;

use minijinja::machinery::ast::{Expr, Stmt};
use minijinja::{Environment, Error, ErrorKind};

use super::methods::METHODS;
use super::walk::{Node, walk};

/// Names that are functions within loops, macros and call blocks, or values that can be called.
const CALLABLE: [&str; 5] = ["caller", "loop", "cycle", "changed", "next"];

/// Checks the names of filters, tests, functions and methods.
///
/// # Errors
/// The first that is unknown, with its line.
pub(super) fn names(template: &Stmt<'_>, environment: &Environment<'_>) -> Result<(), Error> {
    let mut functions: HashSet<&str> = environment.globals().map(|(name, _)| name).collect();
    functions.extend(CALLABLE);
    // What a template assigns may be a macro or a function.
    walk(template, &mut |node| match node {
        Node::Stmt(Stmt::Macro(of)) => {
            functions.insert(of.name);
            functions.extend(of.args.iter().flat_map(assigned));
        }
        Node::Stmt(Stmt::CallBlock(of)) => {
            functions.extend(of.macro_decl.args.iter().flat_map(assigned));
        }
        Node::Stmt(Stmt::Set(of)) => functions.extend(assigned(&of.target)),
        Node::Stmt(Stmt::SetBlock(of)) => functions.extend(assigned(&of.target)),
        Node::Stmt(Stmt::ForLoop(of)) => functions.extend(assigned(&of.target)),
        Node::Stmt(Stmt::WithBlock(of)) => {
            functions.extend(of.assignments.iter().flat_map(|(target, _)| assigned(target)));
        }
        _ => {}
    });
    let mut unknown: Option<Error> = None;
    walk(template, &mut |node| {
        let Node::Expr(expr) = node else { return };
        let (kind, name) = match expr {
            Expr::Filter(of) if !has_filter(environment, of.name) => ("filter", of.name),
            Expr::Test(of) if !has_test(environment, of.name) => ("test", of.name),
            Expr::Call(of) => match &of.expr {
                Expr::Var(var) if !functions.contains(var.id) => ("function", var.id),
                // A member that the template assigned may be a macro.
                Expr::GetAttr(of)
                    if !METHODS.contains(&of.name) && !functions.contains(of.name) =>
                {
                    ("method", of.name)
                }
                _ => return,
            },
            _ => return,
        };
        unknown.get_or_insert_with(|| {
            let line = expr.span().start_line;
            let message = format!("line {line}: there is no {kind} `{name}`");
            Error::new(ErrorKind::SyntaxError, message)
        });
    });
    unknown.map_or(Ok(()), Err)
}

/// The names that a target of an assignment gives values to.
fn assigned<'s>(target: &Expr<'s>) -> Vec<&'s str> {
    match target {
        Expr::Var(of) => vec![of.id],
        Expr::GetAttr(of) => vec![of.name],
        Expr::List(of) => of.items.iter().flat_map(assigned).collect(),
        Expr::Tuple(of) => of.items.iter().flat_map(assigned).collect(),
        _ => Vec::new(),
    }
}

fn has_filter(environment: &Environment<'_>, name: &str) -> bool {
    let tried = environment.empty_state().apply_filter(name, &[]);
    !matches!(tried, Err(error) if error.kind() == ErrorKind::UnknownFilter)
}

fn has_test(environment: &Environment<'_>, name: &str) -> bool {
    let tried = environment.empty_state().perform_test(name, &[]);
    !matches!(tried, Err(error) if error.kind() == ErrorKind::UnknownTest)
}
