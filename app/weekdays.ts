/** ISO weekdays, from 1, as the command line names them. */
export const WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
