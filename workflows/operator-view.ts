import { setCurrentDetails, upsertSearchAttributes, workflowInfo } from "@temporalio/workflow";
import { NEEDS_OPERATOR, SEND_STATUS } from "./search-attributes.ts";

/** What operators see of a workflow in the UI. */
export interface Shown {
  /** A send's status, to search by. */
  status: string;
  /** A sentence: the state, and the updates that help. */
  details: string;
  needsOperator: boolean;
}

/** Shows operators the state of a workflow. An attribute is written only when it changes: each write is an event. */
export class OperatorView {
  #status: string | undefined;
  needsOperator: boolean;

  /** @param needsOperator what the run before this one showed: a run that follows another keeps its search attributes */
  constructor(needsOperator = workflowInfo().typedSearchAttributes.get(NEEDS_OPERATOR) === true) {
    this.needsOperator = needsOperator;
  }

  /** Shows what is given, and leaves the rest as it is. */
  show({ status, details, needsOperator }: Partial<Shown>): void {
    if (details !== undefined) setCurrentDetails(details);
    if (status !== undefined && status !== this.#status) {
      this.#status = status;
      upsertSearchAttributes([{ key: SEND_STATUS, value: status }]);
    }
    if (needsOperator !== undefined && needsOperator !== this.needsOperator) {
      this.needsOperator = needsOperator;
      upsertSearchAttributes([{ key: NEEDS_OPERATOR, value: needsOperator }]);
    }
  }
}
