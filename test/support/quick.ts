/** Settings that make the waits of the product short. A busy machine must still keep them. */
export const QUICK = {
  DEFERRAL_LADDER_SECONDS: "1,1,2",
  HEARTBEAT_TIMEOUT_MS: "2500",
  SMTP_TIMEOUT_MS: "5000",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "3000",
};
