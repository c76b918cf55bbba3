/** The record of each kind of event, as it stood after the change, in the spelling of the API. */
export interface EventObjects {
  [name: string]: Record<string, unknown>;
}
