import { randomInt } from "node:crypto";

/**
 * Free ports are picked below those that the system gives to outgoing connections (from 32768 on Linux, from 49152
 * elsewhere: RFC 6335, section 6). One of those could be taken between the check and the start of its listener.
 */
const PICKED_PORTS = [10_000, 32_768] as const;

/**
 * Ports tried before a port in use is reported. Random ones, unlike those of get-port, which begins at the low end of a
 * range: processes that start at the same time would all try the same ports.
 */
export const PORT_PICKS = 50;

/** A port that may well be free. */
export const pickPort = (): number => randomInt(...PICKED_PORTS);
