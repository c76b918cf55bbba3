import { setCurrentDetails, upsertSearchAttributes, workflowInfo } from "@temporalio/workflow";
import { NEEDS_OPERATOR, SEND_STATUS } from "../temporal/search-attributes.ts";

export interface Shown {
  status: string;
  /** A sentence: the state, and the updates that help. */
  details: string;
  needsOperator: boolean;
}

/** Shows operators the state of a workflow. An attribute is written only when it changes: each write is an event. */
export class OperatorView {
  #status: string | undefined;
  // A run that follows another keeps its search attributes.
  #needsOperator = workflowInfo().typedSearchAttributes.get(NEEDS_OPERATOR) === true;

  show({ status, details, needsOperator }: Partial<Shown>): void {
    if (details !== undefined) setCurrentDetails(details);
    if (status !== undefined && status !== this.#status) {
      this.#status = status;
      upsertSearchAttributes([{ key: SEND_STATUS, value: status }]);
    }
    if (needsOperator !== undefined && needsOperator !== this.#needsOperator) {
      this.#needsOperator = needsOperator;
      upsertSearchAttributes([{ key: NEEDS_OPERATOR, value: needsOperator }]);
    }
  }
}
