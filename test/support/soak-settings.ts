/** Small slices and short waits, so that much happens. */
export const SETTINGS = {
  ACCOUNT_CHECK_SECONDS: "60",
  DEFERRAL_LADDER_SECONDS: "1,2,4",
  DISPATCH_SLICE_ROWS: "120",
  SMTP_TIMEOUT_MS: "5000",
  SMTP_DOT_TIMEOUT_MS: "60000",
  WEBHOOK_LADDER_SECONDS: "0,1,1,2",
  WEBHOOK_TIMEOUT_MS: "2000",
  LOG_LEVEL: "warn",
};
