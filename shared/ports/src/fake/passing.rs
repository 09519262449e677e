//! Passing on the calls of EC2 that a test's own fake has nothing special to say about.

/// Implements the named methods of [`crate::Ec2`] by passing them on, inside an `impl Ec2 for ...`.
///
/// `pass_ec2!(self => self.fake: describe_zones describe_images);` passes two calls on to the field `fake`. To a new
/// [`Fake`](crate::fake::Fake) they are passed when nothing but an empty answer is wanted.
#[macro_export]
macro_rules! pass_ec2 {
    ($me:ident => $to:expr; $($call:ident)+) => {
        $($crate::pass_ec2!(@ $call $me $to);)+
    };
    (@ describe_subnets $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_subnets(filters: &[$crate::ec2::Filter]) -> Vec<$crate::ec2::Subnet>);
    };
    (@ describe_security_groups $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_security_groups(filters: &[$crate::ec2::Filter])
            -> Vec<$crate::ec2::SecurityGroup>);
    };
    (@ describe_images $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_images(
            ids: &[String], owners: &[String], filters: &[$crate::ec2::Filter]) -> Vec<$crate::ec2::Image>);
    };
    (@ describe_zones $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_zones() -> Vec<$crate::ec2::Zone>);
    };
    (@ describe_instance_types $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_instance_types() -> Vec<$crate::ec2::InstanceTypeInfo>);
    };
    (@ describe_instance_type_offerings $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_instance_type_offerings() -> Vec<$crate::ec2::TypeOffering>);
    };
    (@ describe_spot_prices $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_spot_prices() -> Vec<$crate::ec2::SpotPrice>);
    };
    (@ describe_capacity_reservations $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_capacity_reservations(
            ids: &[String], filters: &[$crate::ec2::Filter]) -> Vec<$crate::ec2::CapacityReservation>);
    };
    (@ describe_placement_groups $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_placement_groups(names: &[String], ids: &[String])
            -> Vec<$crate::ec2::PlacementGroup>);
    };
    (@ create_fleet $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, create_fleet(request: &$crate::ec2::FleetRequest) -> $crate::ec2::FleetAnswer);
    };
    (@ dry_run_instances $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, dry_run_instances(
            launch_template: &str, instance_type: &str, subnet_id: &str, tags: &$crate::ec2::Tags) -> ());
    };
    (@ describe_instances $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_instances(ids: &[$crate::fake::InstanceId])
            -> Vec<$crate::ec2::Instance>);
    };
    (@ find_instances $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, find_instances(filters: &[$crate::ec2::Filter]) -> Vec<$crate::ec2::Instance>);
    };
    (@ describe_instance_status $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_instance_status(ids: &[$crate::fake::InstanceId])
            -> Vec<$crate::ec2::InstanceStatus>);
    };
    (@ terminate_instances $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, terminate_instances(ids: &[$crate::fake::InstanceId]) -> ());
    };
    (@ create_tags $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, create_tags(ids: &[String], tags: &$crate::ec2::Tags) -> ());
    };
    (@ describe_launch_templates $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, describe_launch_templates(filters: &[$crate::ec2::Filter])
            -> Vec<$crate::ec2::LaunchTemplate>);
    };
    (@ get_launch_template $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, get_launch_template(name: &str) -> Option<$crate::ec2::LaunchTemplate>);
    };
    (@ create_launch_template $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, create_launch_template(
            name: &str, data: &$crate::ec2::LaunchTemplateData, tags: &$crate::ec2::Tags, dry_run: bool)
            -> $crate::ec2::LaunchTemplate);
    };
    (@ delete_launch_template $me:ident $to:expr) => {
        $crate::pass_ec2!(# $me $to, delete_launch_template(name: &str) -> ());
    };
    (# $me:ident $to:expr, $call:ident($($name:ident: $type:ty),*) -> $answer:ty) => {
        async fn $call(&$me, $($name: $type),*) -> Result<$answer, $crate::AwsError> {
            $crate::Ec2::$call(&$to, $($name),*).await
        }
    };
}
