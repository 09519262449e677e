//! NodeOverlay (`spec` api 14).

use super::{
    Crd, Names,
    parts::{Keys, quantities, requirements},
    schema::{Schema, conditions, root},
};
use crate::NodeOverlay;

pub(super) fn crd() -> Crd {
    let names = Names {
        singular: "nodeoverlay",
        short: &["overlays"],
        category: "karpenter",
        scale: false,
        columns: &[
            ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
            ("Weight", "integer", ".spec.weight", 1),
        ],
    };
    let spec = Schema::object(&[
        (
            "requirements",
            "Which instance types and offerings are meant; an empty list means all.",
            requirements(Keys::Overlay),
        ),
        (
            "price",
            "Dollars per hour, instead of the price that is known.",
            Schema::text().pattern(r"^\d+(\.\d+)?$"),
        ),
        (
            "priceAdjustment",
            "What is added to the price: an amount or a percentage, with its sign.",
            Schema::text().pattern(
                r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$",
            ),
        ),
        (
            "capacity",
            "Resources that the instance types have besides those that are known.",
            quantities().rule(
                "!self.exists(it, it in ['cpu', 'memory', 'ephemeral-storage', 'pods'])",
                "invalid resource restricted",
            ),
        ),
        (
            "weight",
            "Overlays of higher weight win; absent counts as 0.",
            Schema::int32().min(1).max(10000),
        ),
    ])
    .required(&["requirements"])
    .rule(
        "!has(self.price) || !has(self.priceAdjustment)",
        "cannot set both 'price' and 'priceAdjustment'",
    );
    let status = Schema::object(&[("conditions", "", conditions().keyed_by("type"))]);
    let help = "An overlay changes what planning believes about prices and capacity of instance types. Alpha.";
    super::crd::<NodeOverlay>(&names, &root(help, spec, status, true))
}
