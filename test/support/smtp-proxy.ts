import { stack } from "./stack.ts";
import { startTcpProxy, type Target, type TcpProxy } from "./tcp-proxy.ts";

/** A way to the mail catcher of a test's own. */
export interface SmtpProxy extends TcpProxy {
  /** For the columns of a sending account. */
  account: Target;
}

export async function startSmtpProxy(options?: Parameters<typeof startTcpProxy>[1]): Promise<SmtpProxy> {
  const { hostname, port } = new URL((await stack()).mail.smtp);
  const proxy = await startTcpProxy({ host: hostname, port: Number(port) }, options);
  return Object.assign(proxy, { account: { host: proxy.host, port: proxy.port } });
}
