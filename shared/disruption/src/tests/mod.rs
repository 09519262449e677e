mod budgets;
mod consolidation;
mod eligibility;
mod methods;
mod passes;
mod scheduler;
mod search;
mod validation;
