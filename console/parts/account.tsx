import { useState } from "react";
import { useData } from "../session.tsx";
import { Field, Inputs, type Values } from "./form.tsx";

/** The providers by their codes, with the server that they usually have. */
export const PROVIDERS = {
  SMTP_OTHER: ["Other SMTP server", ""],
  GOOGLE: ["Google (Gmail, Workspace)", "smtp.gmail.com"],
  MICROSOFT: ["Microsoft 365", "smtp.office365.com"],
  SMTP_AMAZON_SES: ["Amazon SES", "email-smtp.eu-central-1.amazonaws.com"],
  SMTP_BREVO: ["Brevo", "smtp-relay.brevo.com"],
  SMTP_MAILGUN: ["Mailgun", "smtp.mailgun.org"],
  SMTP_MAILJET: ["Mailjet", "in-v3.mailjet.com"],
  SMTP_POSTMARK: ["Postmark", "smtp.postmarkapp.com"],
  SMTP_RESEND: ["Resend", "smtp.resend.com"],
  SMTP_SENDGRID: ["SendGrid", "smtp.sendgrid.net"],
  SMTP_SPARKPOST: ["SparkPost", "smtp.sparkpostmail.com"],
} as const;
export type Provider = keyof typeof PROVIDERS;

/** The sending accounts of the team. */
export const useAccounts = () => useData(["accounts", "list"], ({ app }) => app.accounts.list.query({}));

const SECURITIES = {
  starttls: "STARTTLS, usually port 587",
  tls: "TLS, usually port 465",
  none: "None (this machine only)",
};
const count = { type: "number", min: 1 } as const;
export const SERVER_INPUTS = [
  ["host", "Server", { required: true }],
  ["port", "Port", { ...count, max: 65_535, required: true }],
  ["security", "Security", { choices: SECURITIES }],
] as const;
export const LIMIT_INPUTS = [
  ["max_connections", "Simultaneous connections", { ...count, max: 1_000, required: true }],
  ["hourly_limit", "Emails per hour", { ...count, hint: "As your provider allows. Leave empty for no limit." }],
  ["daily_limit", "Emails per day", { ...count, hint: "A day begins at midnight UTC. Leave empty for no limit." }],
] as const;
export const USUAL_SERVER = { port: 587, security: "starttls", max_connections: 10 };

export const LOGINS = {
  password: "Password",
  oauth: "OAuth, with a refresh token",
  none: "No login",
};
const secret = { type: "password", autoComplete: "new-password" } as const;
const USERNAME = ["username", "User name", { required: true, autoComplete: "off" }] as const;
const LOGIN_INPUTS = {
  password: [USERNAME, ["password", "Password", { ...secret, required: true }]],
  oauth: [
    USERNAME,
    ["client_id", "Client ID", { required: true, autoComplete: "off" }],
    ["client_secret", "Client secret", { ...secret, hint: "Leave empty if the client has none." }],
    ["refresh_token", "Refresh token", { ...secret, required: true }],
    ["token_url", "Token endpoint", { type: "url", hint: "Leave empty for Google or Microsoft." }],
  ],
  none: [],
} as const;
/** Names of the inputs of a login, as the service names them in its refusals. */
const LOGIN_FIELDS = ["username", "password", "client_id", "client_secret", "refresh_token", "token_url"];

export const limitsOf = (values: Values) => ({
  max_connections: Number(values["max_connections"]),
  hourly_limit: Number(values["hourly_limit"]) || null,
  daily_limit: Number(values["daily_limit"]) || null,
});

/** Fields that are empty, or not shown, are left out. */
export const loginOf = (values: Values) => ({
  host: values["host"] ?? "",
  port: Number(values["port"]),
  security: values["security"] as keyof typeof SECURITIES,
  ...Object.fromEntries(LOGIN_FIELDS.flatMap((name) => (values[name] ? [[name, values[name]]] : []))),
  username: values["username"] || null,
});

export function LoginFields() {
  const [kind, setKind] = useState("password");
  return (
    <>
      <Field label="Login" name="login" choices={LOGINS} value={kind} onChange={setKind} />
      <Inputs inputs={LOGIN_INPUTS[kind as keyof typeof LOGINS]} />
    </>
  );
}
