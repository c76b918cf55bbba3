import type { LookupAddress } from "node:dns";
import type { LookupFunction, TcpNetConnectOpts } from "node:net";

const NEXT_ADDRESS_AFTER_MS = 2_000;

/** To one of these checked addresses and to no other: the host is not looked up again. */
export const connectOptions = (hostname: string, port: number, addresses: LookupAddress[]): TcpNetConnectOpts => ({
  host: hostname.replace(/^\[|\]$/g, ""),
  port,
  // Not called for an IP address; the guard has checked that too.
  lookup: ((_hostname, { all }, answer) => {
    const [first] = addresses;
    if (all || first === undefined) answer(null, addresses);
    else answer(null, first.address, first.family);
  }) satisfies LookupFunction,
  autoSelectFamily: true,
  autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_AFTER_MS,
});
