//! Goes through a parsed template.

use minijinja::machinery::ast::{self, CallArg, Expr, Stmt};

/// A part of a template.
pub(super) enum Node<'t, 's> {
    /// A statement.
    Stmt(&'t Stmt<'s>),
    /// An expression.
    Expr(&'t Expr<'s>),
}

/// Calls `visit` with every statement and expression, outer ones first.
pub(super) fn walk<'t, 's>(stmt: &'t Stmt<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    visit(Node::Stmt(stmt));
    let mut bodies: Vec<&'t Vec<Stmt<'s>>> = Vec::new();
    match stmt {
        Stmt::Template(template) => bodies.push(&template.children),
        Stmt::EmitExpr(emit) => expr(&emit.expr, visit),
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
        Stmt::ForLoop(of) => {
            expr(&of.target, visit);
            expr(&of.iter, visit);
            of.filter_expr.iter().for_each(|filter| expr(filter, visit));
            bodies.extend([&of.body, &of.else_body]);
        }
        Stmt::IfCond(of) => {
            expr(&of.expr, visit);
            bodies.extend([&of.true_body, &of.false_body]);
        }
        Stmt::WithBlock(of) => {
            for (target, value) in &of.assignments {
                expr(target, visit);
                expr(value, visit);
            }
            bodies.push(&of.body);
        }
        Stmt::Set(of) => {
            expr(&of.target, visit);
            expr(&of.expr, visit);
        }
        Stmt::SetBlock(of) => {
            expr(&of.target, visit);
            of.filter.iter().for_each(|filter| expr(filter, visit));
            bodies.push(&of.body);
        }
        Stmt::AutoEscape(of) => {
            expr(&of.enabled, visit);
            bodies.push(&of.body);
        }
        Stmt::FilterBlock(of) => {
            expr(&of.filter, visit);
            bodies.push(&of.body);
        }
        Stmt::Macro(of) => declaration(of, visit),
        Stmt::CallBlock(of) => {
            call(&of.call, visit);
            declaration(&of.macro_decl, visit);
        }
        Stmt::Do(of) => call(&of.call, visit),
    }
    bodies.into_iter().flatten().for_each(|stmt| walk(stmt, visit));
}

fn declaration<'t, 's>(of: &'t ast::Macro<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    of.args.iter().chain(&of.defaults).for_each(|arg| expr(arg, visit));
    of.body.iter().for_each(|stmt| walk(stmt, visit));
}

fn call<'t, 's>(of: &'t ast::Call<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    expr(&of.expr, visit);
    arguments(&of.args, visit);
}

fn arguments<'t, 's>(of: &'t [CallArg<'s>], visit: &mut dyn FnMut(Node<'t, 's>)) {
    for argument in of {
        match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => expr(value, visit),
        }
    }
}

fn expr<'t, 's>(of: &'t Expr<'s>, visit: &mut dyn FnMut(Node<'t, 's>)) {
    visit(Node::Expr(of));
    match of {
        Expr::Var(_) | Expr::Const(_) => {}
        Expr::Slice(of) => {
            expr(&of.expr, visit);
            [&of.start, &of.stop, &of.step]
                .into_iter()
                .flatten()
                .for_each(|part| expr(part, visit));
        }
        Expr::UnaryOp(of) => expr(&of.expr, visit),
        Expr::BinOp(of) => {
            expr(&of.left, visit);
            expr(&of.right, visit);
        }
        Expr::Compare(of) => {
            expr(&of.expr, visit);
            of.ops.iter().for_each(|operand| expr(&operand.expr, visit));
        }
        Expr::IfExpr(of) => {
            expr(&of.test_expr, visit);
            expr(&of.true_expr, visit);
            of.false_expr.iter().for_each(|otherwise| expr(otherwise, visit));
        }
        Expr::Filter(of) => {
            of.expr.iter().for_each(|value| expr(value, visit));
            arguments(&of.args, visit);
        }
        Expr::Test(of) => {
            expr(&of.expr, visit);
            arguments(&of.args, visit);
        }
        Expr::GetAttr(of) => expr(&of.expr, visit),
        Expr::GetItem(of) => {
            expr(&of.expr, visit);
            expr(&of.subscript_expr, visit);
        }
        Expr::Call(of) => call(of, visit),
        Expr::List(of) => of.items.iter().for_each(|item| expr(item, visit)),
        Expr::Tuple(of) => of.items.iter().for_each(|item| expr(item, visit)),
        Expr::Map(of) => of.keys.iter().chain(&of.values).for_each(|item| expr(item, visit)),
    }
}
