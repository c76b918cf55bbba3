export interface Recorded {
  /** The folder of the program's entry. */
  program: "api" | "workers" | "other";
  text: string;
  /** Prepared by the connection under a name. */
  prepared: boolean;
  /** Files of the project on the call stack without `db/`, the nearest first. */
  from: string[];
  /** MikroORM wrote it to save a changed entity. */
  persists: boolean;
}
