/** The database refuses a process: the message names the setting and the remedy, in one line. */
export class AdmissionError extends Error {
  override name = "AdmissionError";
}
