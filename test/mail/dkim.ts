import { dkimVerify } from "mailauth/lib/dkim/verify.js";

/** A signature as an independent verifier finds it. */
export interface Verified {
  result: string;
  selector: string;
  algorithm: string;
  /** Names of the header fields that it covers, in lower case, sorted. */
  fields: string[];
}

/** @param records TXT records by their names */
export async function verifyDkim(raw: Buffer, records: ReadonlyMap<string, string>): Promise<Verified[]> {
  const { results } = await dkimVerify(raw, {
    resolver: async (name) => {
      const text = records.get(name);
      if (text === undefined) throw Object.assign(new Error(`no record ${name}`), { code: "ENOTFOUND" });
      return [[text]];
    },
  });
  // A mail without a signature has one result, which says so.
  return results
    .filter(({ selector }) => selector !== undefined)
    .map(({ status, selector = "", algo = "", signingHeaders }) => ({
      result: status.result,
      selector,
      algorithm: algo,
      fields: (signingHeaders?.keys ?? "").toLowerCase().split(/: ?/).filter(Boolean).sort(),
    }));
}
