import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { type Env, SettingsError } from "../config/env.ts";

/** A key and its certificate chain, both PEM. */
export interface Certificate {
  key: string;
  cert: string;
}

/** Reads a file. @throws {SettingsError} naming the setting */
function readPem(setting: "INTAKE_TLS_KEY_FILE" | "INTAKE_TLS_CERTIFICATE_FILE", path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new SettingsError(`${setting}: its file cannot be read (${(cause as NodeJS.ErrnoException).code}).`);
  }
}

/**
 * Reads the certificate that STARTTLS of the intake shows.
 * @returns undefined where the settings name none
 * @throws {SettingsError} when a file cannot be read, or they are no key and its certificate
 */
export function readCertificate(env: Env): Certificate | undefined {
  const { INTAKE_TLS_KEY_FILE: keyFile, INTAKE_TLS_CERTIFICATE_FILE: certificateFile } = env;
  if (keyFile === undefined || certificateFile === undefined) return undefined;
  const certificate = {
    key: readPem("INTAKE_TLS_KEY_FILE", keyFile),
    cert: readPem("INTAKE_TLS_CERTIFICATE_FILE", certificateFile),
  };
  if (!fits(certificate)) {
    throw new SettingsError(
      "INTAKE_TLS_KEY_FILE and INTAKE_TLS_CERTIFICATE_FILE: they must hold a key and its certificate in PEM.",
    );
  }
  return certificate;
}

/**
 * Whether TLS accepts both, and the key belongs to the certificate: a context alone accepts a key of another type than
 * the certificate's.
 */
function fits({ key, cert }: Certificate): boolean {
  try {
    createSecureContext({ key, cert });
    return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}
