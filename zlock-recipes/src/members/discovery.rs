//! The JSON of an instance of a service, as Curator's `ServiceDiscovery` has it.

use serde_json::{Map, Value, json};
use zlock_core::{Error, ErrorKind, Result};

/// The type of an instance that belongs to a session, as each member does.
const DYNAMIC: &str = "DYNAMIC";

/// An instance of a service in Curator's `ServiceDiscovery`: the payload of a member in the format of its `JsonInstanceSerializer`.
/// Needs the feature `discovery`.
///
/// The instance `w7` of the service `orders` is the member `w7` of the group `<base path>/orders`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::discovery::ServiceInstance;
///
/// let mut instance = ServiceInstance::new("orders", "w7");
/// instance.address = Some("10.0.0.7".into());
/// instance.port = Some(80);
/// let orders = client.members("/discovery/orders")?;
/// let me = orders.join(&instance.id, instance.to_json()).await?;
///
/// let members = orders.list().await?;
/// assert_eq!(ServiceInstance::from_json(&members[0].payload)?, instance);
/// # me.leave().await?;
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceInstance {
    /// The name of the service, which is the last segment of the group's path.
    pub name: String,
    /// The ID of the instance, which is that of the member.
    pub id: String,
    /// The host.
    pub address: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// The port for TLS.
    pub ssl_port: Option<u16>,
    /// What the instance adds, or `Null`. A Java program reads an object as a class of its own if `@class` names that.
    pub payload: Value,
    /// When the instance was registered, in milliseconds since 1970, by the clock of whoever registered it. 0 in a new one.
    pub registration_time_utc: i64,
    /// `DYNAMIC` for an instance that belongs to a session, as each member does.
    pub service_type: String,
    /// A template, such as `{scheme}://{address}:{port}`.
    pub uri_spec: Option<String>,
    /// Whether the instance is to be used. By default, Curator neither writes nor uses this.
    pub enabled: bool,
}

impl ServiceInstance {
    /// Creates an instance of type `DYNAMIC` that is enabled, without anything else.
    ///
    /// # Examples
    /// See [`ServiceInstance`].
    #[must_use]
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> Self {
        ServiceInstance {
            name: name.into(),
            id: id.into(),
            address: None,
            port: None,
            ssl_port: None,
            payload: Value::Null,
            registration_time_utc: 0,
            service_type: DYNAMIC.into(),
            uri_spec: None,
            enabled: true,
        }
    }

    /// Reads what Curator or [`to_json`](Self::to_json) has written. As in Curator, any field may be missing, and unknown ones are
    /// ignored.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if this is no JSON object, or a field has another type.
    ///
    /// # Examples
    /// ```
    /// use zlock::discovery::ServiceInstance;
    ///
    /// let instance = ServiceInstance::from_json(br#"{"name":"orders","id":"w7","port":80}"#)?;
    /// assert_eq!((instance.port, instance.service_type.as_str()), (Some(80), "DYNAMIC"));
    /// # Ok::<(), zlock::Error>(())
    /// ```
    pub fn from_json(json: &[u8]) -> Result<Self> {
        read(json).map_err(|why| {
            let message = format!("{} bytes are no instance of a service: {why}", json.len());
            Error::new(ErrorKind::InvalidArgument, "discovery").with_message(message)
        })
    }

    /// Returns the JSON that Curator reads. It has `enabled` only if that is `false`, since older clients of Curator refuse it.
    ///
    /// # Examples
    /// See [`ServiceInstance`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut fields = vec![
            ("name", json!(self.name)),
            ("id", json!(self.id)),
            ("address", json!(self.address)),
            ("port", json!(self.port)),
            ("sslPort", json!(self.ssl_port)),
            ("payload", self.payload.clone()),
            ("registrationTimeUTC", json!(self.registration_time_utc)),
            ("serviceType", json!(self.service_type)),
            ("uriSpec", self.uri_spec.as_deref().map_or(Value::Null, parts)),
        ];
        if !self.enabled {
            fields.push(("enabled", json!(false)));
        }
        // In Curator's order, which a map would not keep.
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    }
}

fn read(json: &[u8]) -> Result<ServiceInstance, String> {
    let fields: Map<String, Value> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let text = |name: &str| field(&fields, name, |value| value.as_str().map(str::to_owned));
    let port = |name: &str| field(&fields, name, |value| u16::try_from(value.as_u64()?).ok());
    Ok(ServiceInstance {
        name: text("name")?.unwrap_or_default(),
        id: text("id")?.unwrap_or_default(),
        address: text("address")?,
        port: port("port")?,
        ssl_port: port("sslPort")?,
        payload: fields.get("payload").cloned().unwrap_or(Value::Null),
        registration_time_utc: field(&fields, "registrationTimeUTC", Value::as_i64)?.unwrap_or(0),
        service_type: text("serviceType")?.unwrap_or_else(|| DYNAMIC.into()),
        uri_spec: field(&fields, "uriSpec", template)?,
        enabled: field(&fields, "enabled", Value::as_bool)?.unwrap_or(true),
    })
}

/// Returns a field, or `None` if it is missing or `null`.
fn field<T>(
    fields: &Map<String, Value>,
    name: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, String> {
    match fields.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| format!("unexpected `{name}`")),
    }
}

/// Returns the parts of a template: what is in braces is a variable.
fn parts(template: &str) -> Value {
    let is_variable = [false, true].into_iter().cycle();
    let parts = template.split(['{', '}']).zip(is_variable).filter(|(text, _)| !text.is_empty());
    let part = |(text, variable): (&str, bool)| {
        let value = if variable { text.trim() } else { text };
        json!({ "value": value, "variable": variable })
    };
    json!({ "parts": parts.map(part).collect::<Vec<_>>() })
}

/// Returns the template of these parts.
fn template(spec: &Value) -> Option<String> {
    let part = |part: &Value| {
        let value = part["value"].as_str()?;
        Some(if part["variable"].as_bool()? { format!("{{{value}}}") } else { value.to_owned() })
    };
    spec["parts"].as_array()?.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the `JsonInstanceSerializer` of Curator 5 with Jackson 2.14: with a class, a text and nothing as the payload;
    /// disabled, in its mode that is not compatible; and with a map and a number.
    const CURATORS: [&str; 7] = [
        r#"{"name":"orders","id":"w7","address":"10.0.0.7","port":80,"sslPort":443,"payload":{"@class":"com.example.Payload","weight":3,"zone":"a"},"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},{"value":"address","variable":true},{"value":":","variable":false},{"value":"port","variable":true}]}}"#,
        r#"{"name":"orders","id":"w7","address":"10.0.0.7","port":80,"sslPort":null,"payload":"eu ü","registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null}"#,
        r#"{"name":"orders","id":"w7","address":"10.0.0.7","port":80,"sslPort":null,"payload":null,"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null}"#,
        r#"{"name":"orders","id":"w7","address":"10.0.0.7","port":80,"sslPort":null,"payload":null,"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null,"enabled":false}"#,
        r#"{"name":"orders","id":"w7","address":null,"port":null,"sslPort":null,"payload":{"@class":"java.util.HashMap","zone":"a"},"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null}"#,
        r#"{"name":"orders","id":"w7","address":null,"port":null,"sslPort":null,"payload":7,"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null}"#,
        r#"{"name":"orders","id":"w7","address":null,"port":null,"sslPort":null,"payload":["java.lang.Long",7],"registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","uriSpec":null}"#,
    ];

    #[test]
    fn what_curator_writes_is_read_and_written_again() {
        for json in CURATORS {
            assert_eq!(ServiceInstance::from_json(json.as_bytes()).unwrap().to_json(), json);
        }
        let first = ServiceInstance::from_json(CURATORS[0].as_bytes()).unwrap();
        let expected = ServiceInstance {
            address: Some("10.0.0.7".into()),
            port: Some(80),
            ssl_port: Some(443),
            payload: json!({ "@class": "com.example.Payload", "weight": 3, "zone": "a" }),
            registration_time_utc: 1_325_129_459_728,
            uri_spec: Some("{scheme}://{address}:{port}".into()),
            ..ServiceInstance::new("orders", "w7")
        };
        assert_eq!(first, expected);
        assert!(!ServiceInstance::from_json(CURATORS[3].as_bytes()).unwrap().enabled);
    }

    #[test]
    fn missing_fields_are_those_of_curator_and_unknown_ones_are_ignored() {
        for json in ["{}", r#"{"zone":{"a":1},"serviceType":null}"#] {
            assert_eq!(ServiceInstance::from_json(json.as_bytes()).unwrap(), ServiceInstance::new("", ""));
        }
    }

    #[test]
    fn templates_are_parsed_as_by_curator() {
        for template in ["{a}/b/{c}", "{a}{b}", "x", "", "{scheme}://h:{[}"] {
            assert_eq!(super::template(&parts(template)).as_deref(), Some(template));
        }
        assert_eq!(parts("{ a }/b"), parts("{a}/b"));
    }

    #[test]
    fn what_is_no_instance_is_refused() {
        for json in ["", "[]", "w7", "{", r#"{"port":70000}"#, r#"{"name":7}"#, r#"{"uriSpec":"http://x"}"#] {
            let error = ServiceInstance::from_json(json.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{json}: {error}");
        }
    }
}
