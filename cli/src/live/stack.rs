//! What CloudFormation knows of a stack.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};

use super::aws::{Aws, CallError};
use crate::Failure;

const VERSION: &str = "2010-05-15";

/// A resource by its name in the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `AWS::SQS::Queue`.
    pub kind: String,
    /// What AWS calls it: a queue's URL, a role's name.
    pub physical_id: String,
    /// `CREATE_COMPLETE`.
    pub status: String,
}

/// A stack as it is deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    pub name: String,
    /// `UPDATE_COMPLETE`.
    pub status: String,
    pub parameters: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
    /// By name in the template.
    pub resources: BTreeMap<String, Resource>,
}

impl Stack {
    /// Asks for the stack and all of its resources.
    ///
    /// # Errors
    /// No such stack, or no answer.
    pub fn read(aws: &Aws, name: &str) -> Result<Self, Failure> {
        let failed = |error: &CallError| {
            let failure = Failure::new(format!("stack {name} in {}: {error}", aws.region));
            // CloudFormation says `ValidationError` for a stack that does not exist.
            if error.code == "ValidationError" || error.is_missing() {
                return failure.fix("check the name and --region");
            }
            if error.is_refused() {
                return failure
                    .fix("the caller needs cloudformation:DescribeStacks and ListStackResources");
            }
            failure
        };
        let fields = [("StackName".to_owned(), name.to_owned())];
        let text = aws.query("cloudformation", "DescribeStacks", VERSION, &fields);
        let mut stack = described(&text.map_err(|it| failed(&it))?, name).ok_or_else(|| {
            Failure::new(format!("stack {name}: CloudFormation's answer has no stack"))
        })?;
        let mut next: Option<String> = None;
        loop {
            let mut fields = vec![("StackName".to_owned(), name.to_owned())];
            fields.extend(next.take().map(|it| ("NextToken".to_owned(), it)));
            let text = aws.query("cloudformation", "ListStackResources", VERSION, &fields);
            next = listed(&text.map_err(|it| failed(&it))?, &mut stack.resources);
            if next.is_none() {
                return Ok(stack);
            }
        }
    }

    /// What AWS calls a resource of the template.
    pub fn physical(&self, logical: &str) -> Option<&str> {
        self.resources.get(logical).map(|it| it.physical_id.as_str()).filter(|it| !it.is_empty())
    }

    /// The cluster that the stack serves. A name too long for a queue has a parameter of its own.
    pub fn cluster(&self) -> Option<&str> {
        let long = self.parameters.get("LongClusterName").filter(|it| !it.is_empty());
        long.or_else(|| self.parameters.get("ClusterName")).map(String::as_str)
    }
}

/// The text of a child element.
fn child<'a>(node: Node<'a, 'a>, name: &str) -> Option<&'a str> {
    node.children().find(|it| it.has_tag_name_any(name))?.text().map(str::trim)
}

/// Names without their namespaces.
trait Named {
    fn has_tag_name_any(&self, name: &str) -> bool;
}

impl Named for Node<'_, '_> {
    fn has_tag_name_any(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

fn described(text: &str, name: &str) -> Option<Stack> {
    let document = Document::parse(text).ok()?;
    let stacks = document.descendants().find(|it| it.has_tag_name_any("Stacks"))?;
    let stack = stacks.children().find(|it| it.has_tag_name_any("member"))?;
    let pairs = |list: &str, key: &str, value: &str| {
        let list = stack.children().find(|it| it.has_tag_name_any(list));
        let members = list.into_iter().flat_map(|it| it.children());
        members
            .filter_map(|it| {
                Some((child(it, key)?.to_owned(), child(it, value).unwrap_or_default().to_owned()))
            })
            .collect()
    };
    Some(Stack {
        name: name.to_owned(),
        status: child(stack, "StackStatus").unwrap_or_default().to_owned(),
        parameters: pairs("Parameters", "ParameterKey", "ParameterValue"),
        outputs: pairs("Outputs", "OutputKey", "OutputValue"),
        resources: BTreeMap::new(),
    })
}

/// Adds a page of resources; the token of the next page.
fn listed(text: &str, to: &mut BTreeMap<String, Resource>) -> Option<String> {
    let document = Document::parse(text).ok()?;
    for member in document.descendants().filter(|it| it.has_tag_name_any("member")) {
        let Some(logical) = child(member, "LogicalResourceId") else { continue };
        let text = |name: &str| child(member, name).unwrap_or_default().to_owned();
        let resource = Resource {
            kind: text("ResourceType"),
            physical_id: text("PhysicalResourceId"),
            status: text("ResourceStatus"),
        };
        to.insert(logical.to_owned(), resource);
    }
    let token = document.descendants().find(|it| it.has_tag_name_any("NextToken"))?;
    token.text().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_read_from_what_cloudformation_says() {
        let text = r#"<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks><member>
            <StackName>prod</StackName><StackStatus>UPDATE_COMPLETE</StackStatus>
            <Parameters><member><ParameterKey>ClusterName</ParameterKey><ParameterValue>blue</ParameterValue></member>
            <member><ParameterKey>SubnetIds</ParameterKey><ParameterValue/></member></Parameters>
            <Outputs><member><OutputKey>EventBus</OutputKey><OutputValue>bus</OutputValue></member></Outputs>
            </member></Stacks></DescribeStacksResult></DescribeStacksResponse>"#;
        let stack = described(text, "prod").expect("a stack");
        assert_eq!((stack.status.as_str(), stack.cluster()), ("UPDATE_COMPLETE", Some("blue")));
        assert_eq!(stack.parameters["SubnetIds"], "");
        let mut long = stack.clone();
        long.parameters.insert("LongClusterName".into(), String::new());
        assert_eq!(long.cluster(), Some("blue"));
        long.parameters.insert("LongClusterName".into(), "b".repeat(90));
        assert_eq!(long.cluster(), Some("b".repeat(90).as_str()));
        assert_eq!(stack.outputs["EventBus"], "bus");
        assert_eq!(described("<a/>", "prod"), None);
        assert_eq!(described("", "prod"), None);
    }

    #[test]
    fn pages_of_resources_are_read_to_the_end() {
        let page = |name: &str, token: &str| {
            format!(
                "<R xmlns='urn:x'><StackResourceSummaries><member><LogicalResourceId>{name}</LogicalResourceId><PhysicalResourceId>id</PhysicalResourceId><ResourceType>AWS::SQS::Queue</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus></member></StackResourceSummaries>{token}</R>"
            )
        };
        let mut found = BTreeMap::new();
        let next = listed(&page("A", "<NextToken>t</NextToken>"), &mut found);
        assert_eq!(next.as_deref(), Some("t"));
        assert_eq!(listed(&page("B", ""), &mut found), None);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(found["A"].physical_id, "id");
    }
}
