import { router } from "../../rest/route.ts";

export const overviewRouter = router({});
