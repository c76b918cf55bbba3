import { randomInt } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";

/** Below those that the system gives to outgoing connections (RFC 6335, section 6), which could be taken meanwhile. */
const PICKED_PORTS = [10_000, 32_768] as const;

/** Random ones, unlike those of get-port, because processes that start at once would all try the same. */
export const PORT_PICKS = 50;

const randomPort = () => randomInt(...PICKED_PORTS);

const claims: Socket[] = [];

/**
 * Picks a TCP port that is probably free, and claims the UDP port of the same number: no other caller gets it until
 * this process ends.
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
