import { signatureHeader, signerOf } from "../../domain/webhooks/request.ts";
import { newSecret } from "../../domain/webhooks/secrets.ts";

/** A delivery that a receiver must accept or refuse. */
export interface SignatureCase {
  what: string;
  expected: boolean;
  header: string;
  /** As text; the receiver gets it as bytes. */
  body: string;
}

export const SECRET = newSecret();
/** Unix seconds. */
export const NOW = 1_795_278_000;
const BODY = '{"id":"evt_1","data":{"object":{"first_name":"Zoë 李"}}}\n';
const signed = (at = NOW, secrets = [SECRET]): string => signatureHeader(secrets.map(signerOf), at, BODY);
const hex = (header: string): string => header.slice(header.indexOf("v1=") + 3);
const good = hex(signed());

const accepted = (what: string, header: string, body = BODY): SignatureCase => ({ what, expected: true, header, body });
const refused = (what: string, header: string, body = BODY): SignatureCase => ({ what, expected: false, header, body });

/** Deliveries, each with what a receiver must make of it at `NOW`. */
export const SIGNATURE_CASES: SignatureCase[] = [
  accepted("a valid signature", signed()),
  accepted("one that is 300 s old", signed(NOW - 300)),
  accepted("one from 300 s ahead", signed(NOW + 300)),
  accepted("two signatures, the first of another secret", signed(NOW, [newSecret(), SECRET])),
  accepted("two signatures, the second of another secret", signed(NOW, [SECRET, newSecret()])),
  accepted("an empty body", signatureHeader([signerOf(SECRET)], NOW, ""), ""),
  accepted("an entry of a version to come", `${signed()},v2=abc`),
  refused("another secret", signed(NOW, [newSecret()])),
  refused("two other secrets", signed(NOW, [newSecret(), newSecret()])),
  refused("a body with one character more", signed(), `${BODY} `),
  refused("a body written anew", signed(), BODY.trim()),
  refused("another body of the same length", signed(), BODY.replace("evt_1", "evt_2")),
  refused("one that is 301 s old", signed(NOW - 301)),
  refused("one from 301 s ahead", signed(NOW + 301)),
  refused("an old signature under a new timestamp", `t=${NOW},v1=${hex(signed(NOW - 1))}`),
  ...[
    "",
    ",",
    "=",
    "t=,v1=",
    `t=${NOW}`,
    `t=${NOW},v1=`,
    `t=${NOW},v1`,
    `v1=${good}`,
    `t=,v1=${good}`,
    `t=soon,v1=${good}`,
    `t=NaN,v1=${good}`,
    `t=Infinity,v1=${good}`,
    `t=${NOW}.0,v1=${good}`,
    `t=${NOW}0000000000000000000000,v1=${good}`,
    `t=-${NOW},v1=${good}`,
    `t=٣,v1=${good}`,
    `t=${NOW},v1=${good.slice(0, -1)}`,
    `t=${NOW},v1=${good}0`,
    `t=${NOW},v1=${"z".repeat(64)}`,
    `t=${NOW},v1=${"é".repeat(32)}`,
    `t=${NOW},v0=${good}`,
    `t=${NOW};v1=${good}`,
    good,
    "9".repeat(5_000),
    `t=${"9".repeat(400)},v1=${good}`,
    `t=${"9".repeat(5_000)},v1=${good}`,
  ].map((header) => refused(`the header ${header.length > 40 ? `${header.slice(0, 40)}…` : header}`, header)),
];
