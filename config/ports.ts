import { randomInt } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";

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

const randomPort = () => randomInt(...PICKED_PORTS);

/** Referenced here, so that they stay open as long as the process lives. */
const claims: Socket[] = [];

/**
 * Picks a TCP port that is probably free. No other caller of this function gets it until this process ends: a stack
 * chooses its ports seconds before its processes listen on them. The claim is the UDP port of the same number, which the
 * system gives back however the process ends.
 * @param pick gives a port to try; for tests
 * @throws {Error} when `PORT_PICKS` ports in a row are claimed
 */
export async function claimPort(pick = randomPort): Promise<number> {
  for (let tries = 1; ; tries++) {
    const port = pick();
    const claim = createSocket("udp4").unref();
    try {
      claim.bind({ address: "127.0.0.1", port, exclusive: true });
      await once(claim, "listening");
      claims.push(claim);
      return port;
    } catch (error) {
      claim.close();
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE" || tries === PORT_PICKS) throw error;
    }
  }
}
