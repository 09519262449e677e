//! The scheduler as the methods ask it.

use spokeshave_disruption::{
    Purpose, Simulation, SimulationError, Simulator,
    simulation::{NewClaim, Unplaced},
};

use crate::world::World;

/// Places pods with the real scheduler.
pub struct Scheduler<'a> {
    world: &'a World,
}

impl<'a> Scheduler<'a> {
    pub fn new(world: &'a World) -> Self {
        Self { world }
    }

    /// The claim that a static pool's template makes.
    pub fn template(&self, _pool: &str) -> Option<NewClaim> {
        None
    }
}

impl Simulator for Scheduler<'_> {
    fn simulate(
        &mut self,
        without: &[usize],
        _purpose: Purpose,
    ) -> Result<Simulation, SimulationError> {
        let unplaced = without
            .iter()
            .filter_map(|at| self.world.view.nodes.get(*at))
            .map(|it| Unplaced {
                pod: it.name().into(),
                error: "no scheduler".into(),
                was_pending: false,
            })
            .collect();
        Ok(Simulation { unplaced, ..Simulation::default() })
    }
}
